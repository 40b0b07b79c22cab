// Lets the search work in pages that are read from files, where a browser starts no worker: the
// worker's script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = `<script src="${url}"></script>`
      this.inside = new Promise(ready => frame.addEventListener("load", () => {
        frame.contentWindow.postMessage = data =>
          this.dispatchEvent(new MessageEvent("message", { data }))
        ready(frame.contentWindow)
      }))
      document.body.append(frame)
    }
    async postMessage(data) {
      (await this.inside).dispatchEvent(new MessageEvent("message", { data }))
    }
    terminate() {}
  }
  window.Worker = window.IFrameWorker
}
