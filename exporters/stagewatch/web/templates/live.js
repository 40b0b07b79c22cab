// Puts the page's latest facts in place of the old ones every few seconds.
"use strict";
(() => {
  const every = 1000 * Number(document.body.dataset.every);
  const lost = document.querySelector(".lost");
  const details = (main) => main.querySelectorAll("details[data-key]");

  function replace(markup) {
    const main = document.querySelector("main");
    const fresh = new DOMParser().parseFromString(markup, "text/html").querySelector("main");
    if (!fresh) throw new Error("no facts");
    // What the reader has opened or closed stays so; what has become urgent opens by itself.
    const chosen = new Map();
    for (const one of details(main)) {
      if (one.open !== (one.dataset.open === "1")) chosen.set(one.dataset.key, one.open);
    }
    for (const one of details(fresh)) {
      if (chosen.has(one.dataset.key)) one.open = chosen.get(one.dataset.key);
    }
    const focus = document.activeElement?.closest("details[data-key]")?.dataset.key;
    const pictures = (of) => [...of.querySelectorAll(".waits")];
    const scrolled = pictures(main).map((one) => one.scrollLeft);
    main.replaceWith(document.adoptNode(fresh));
    pictures(fresh).forEach((one, at) => { one.scrollLeft = scrolled[at] ?? 0; });
    for (const one of details(fresh)) {
      if (one.dataset.key === focus) one.querySelector("summary").focus({ preventScroll: true });
    }
    document.title = fresh.dataset.title;
  }

  async function renew() {
    try {
      if (!document.hidden && getSelection().isCollapsed) {
        const answer = await fetch("/live", { signal: AbortSignal.timeout(2 * every) });
        if (!answer.ok) throw new Error(answer.statusText);
        replace(await answer.text());
        lost.hidden = true;
      }
    } catch {
      lost.hidden = false;
    }
    setTimeout(renew, every);
  }
  setTimeout(renew, every);
})();
