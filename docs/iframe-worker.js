// Search when the pages are opened from disk: browsers start no worker there, so a hidden frame runs its script.
// Loaded as a polyfill in place of the one that the offline plugin would fetch from elsewhere.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.tell(this, data);
      this.inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.inside.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.tell(this.inside, data));
    }

    tell(target, data) {
      setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data }))); // later, as a worker would
    }
  };
  window.Worker = window.IFrameWorker;
}
