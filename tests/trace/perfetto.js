// Runs Perfetto's own trace processor as its user interface does, in what looks like a web worker:
// `node perfetto.js DIRECTORY <REQUESTS >REPLIES`.  Both are streams of TraceProcessorRpcStream, see
// protos/perfetto/trace_processor/trace_processor.proto of https://github.com/google/perfetto;
// DIRECTORY has engine_bundle.js and the WebAssembly that it asks for.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

// The bundle is one long line, which Node would print before what is wrong.
process.on("uncaughtException", (error) => {
  fs.writeSync(2, String(error.stack || error).slice(-2000) + "\n");
  process.exit(1);
});

const directory = process.argv[2];
class XMLHttpRequest {
  open(_, name) {
    this.response = fs.readFileSync(path.join(directory, path.basename(name)));
  }
  send() {}
}
const worker = {
  WorkerGlobalScope: {}, XMLHttpRequest, location: { href: "" },
  TextDecoder, TextEncoder, URL, performance, setTimeout,
  console: { log: console.error, warn: console.error, error: console.error },
};
worker.self = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(directory, "engine_bundle.js"), "utf8"), worker);
const port = { postMessage: (reply) => fs.writeSync(1, reply) };
worker.onmessage({ data: port });
setTimeout(() => {
  const requests = fs.readFileSync(0);
  const data = vm.runInContext("(size) => new Uint8Array(size)", worker)(requests.length);
  data.set(requests);
  port.onmessage({ data });
}, 0);
