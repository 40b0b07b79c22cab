/* What a test tells the fake driver while it runs: "KEY VALUE" lines of the file FAKE_NVML names.
 *
 * A key is looked up first as "gpu.INDEX.KEY", then as "KEY".  The file is replaced by rename, and
 * read again whenever the 64-bit number in the file "<FAKE_NVML>.changes" has changed, so that the
 * driver can change its behaviour mid-call.
 */
#ifndef FAKE_NVML_CONTROL_H
#define FAKE_NVML_CONTROL_H

#include <stdint.h>

/* The value of a key, or NULL; valid on this thread until its next call. */
const char *control_text(int gpu, const char *key);

int control_has(int gpu, const char *key);
uint64_t control_number(int gpu, const char *key, uint64_t fallback);
double control_real(int gpu, const char *key, double fallback);

#endif
