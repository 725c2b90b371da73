// Three small programs, one for each kind of panel. `element`, `trigger`, `watch` and `props` come from the page.
//#drop
const side = props.side, most = props.most, kinds = props.kinds;
const find = (name) => element.querySelector(name);
const say = (words, bad) => {
  const line = find(".u-status");
  line.textContent = words;
  line.classList.toggle("u-bad", !!bad);
};
const send = (file, path, told) => new Promise((done) => {
  const request = new XMLHttpRequest();
  request.open("POST", "unem/files/" + side);
  request.setRequestHeader("X-Unem-Session", props.value);
  request.setRequestHeader("X-Unem-Name", encodeURIComponent(path));
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.upload.onprogress = (event) => told(event.loaded);
  request.onload = () => done(request.status === 204 ? "" : request.responseText || "The server refused it.");
  request.onerror = () => done(file.name + ": the connection broke off.");
  request.send(file);
});
const take = async (files) => {
  if (!files.length || element.dataset.busy) return;
  if (!props.value) return say("One moment, the page is not ready yet.", true);
  const refused = [], total = files.reduce((sum, f) => sum + f.file.size, 0) || 1;
  const fits = files.filter(({ file, path }) => {
    if (file.size <= most) return true;
    refused.push(path + ": has " + Math.round(file.size / 1e6) + " MB, more than the " + Math.round(most / 1e6) + " MB that may be sent");
    return false;
  });
  const bar = find("progress");
  let sent = 0;
  element.dataset.busy = "yes";
  bar.hidden = false;
  for (const { file, path } of fits) {
    say("Sending " + path);
    const problem = await send(file, path, (now) => { bar.value = (sent + now) / total; });
    if (problem) refused.push(problem);
    sent += file.size;
    bar.value = sent / total;
    if (refused.length > 20) break;
  }
  bar.hidden = true;
  delete element.dataset.busy;
  say(refused.length ? refused.slice(0, 3).join(" · ") + (refused.length > 3 ? " · and " + (refused.length - 3) + " more" : "") : "", refused.length > 0);
  trigger("upload");
};
const usable = (name) => kinds.some((k) => name.toLowerCase().endsWith(k));
const named = (list) => Array.from(list, (file) => ({ file, path: file.webkitRelativePath || file.name }))
  .filter(({ path }) => !path.includes("/") || usable(path));
const walk = async (entry, into) => {
  if (entry.isFile) {
    const file = await new Promise((ok, no) => entry.file(ok, no));
    const path = entry.fullPath.replace(/^\//, "");
    if (!path.includes("/") || usable(path)) into.push({ file, path });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((ok, no) => reader.readEntries(ok, no));
    if (!some.length) return;
    for (const child of some) await walk(child, into);
  }
};
element.addEventListener("change", (event) => {
  if (event.target.type !== "file") return;
  const files = named(event.target.files);
  event.target.value = "";
  take(files);
});
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-open]");
  if (button) find("input." + button.dataset.open).click();
  if (event.target.closest("button[data-clear]")) { say(""); trigger("clear"); }
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  element.addEventListener(kind, (event) => {
    event.preventDefault();
    element.classList.toggle("u-over", kind === "dragover");
  });
}
element.addEventListener("drop", async (event) => {
  const entries = Array.from(event.dataTransfer.items || [], (item) => item.webkitGetAsEntry && item.webkitGetAsEntry()).filter(Boolean);
  if (!entries.length) return take(named(event.dataTransfer.files));
  const files = [];
  for (const entry of entries) await walk(entry, files);
  take(files);
});
//#gallery
let last = null;
element.addEventListener("click", (event) => {
  const tile = event.target.closest("button[data-index]"), page = event.target.closest("button[data-page]");
  if (tile) trigger("select", { index: Number(tile.dataset.index) });
  if (page) trigger("select", { page: Number(page.dataset.page) });
  last = tile ? tile.dataset.index : null;
});
watch("value", () => {  // the pictures are new ones: whoever works by keyboard stays where they were
  const tile = last !== null && document.activeElement === document.body && element.querySelector(`[data-index="${last}"]`);
  if (tile) tile.focus({ preventScroll: true });
});
//#layers
let timer = null;
const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const stop = () => {
  clearInterval(timer);
  timer = null;
  const play = element.querySelector(".u-play");
  if (play) { play.textContent = "▶"; play.setAttribute("aria-label", "Play"); }
};
const state = () => {
  const root = element.querySelector(".u-layers");
  if (!root) return null;
  if (!root.data) root.data = JSON.parse(root.dataset.layers);
  return root;
};
const show = (layer, moving) => {
  const root = state();
  if (!root) return;
  const { labels, shares, sure, classes } = root.data, pictures = root.querySelectorAll(".u-mini");
  const before = moving && !still ? Array.from(pictures, (p) => p.getBoundingClientRect()) : null;
  const lanes = {};
  root.querySelectorAll(".u-lane").forEach((lane, n) => {
    lanes[lane.dataset.class] = lane.querySelector(".u-lane-pictures");
    const share = shares[layer][n];
    lane.querySelector("i").style.width = 100 * share + "%";
    lane.querySelector(".u-share").textContent = (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";
    lane.style.setProperty("--lane", getComputedStyle(lane).getPropertyValue("--c"));
  });
  let moved = 0;
  pictures.forEach((picture) => {
    const q = Number(picture.dataset.query), now = labels[layer][q];
    const went = layer > 0 && labels[layer - 1][q] !== now;
    moved += went;
    picture.classList.toggle("u-went", went);
    picture.style.opacity = 0.35 + 0.65 * sure[layer][q];
    if (lanes[now] && picture.parentNode !== lanes[now]) lanes[now].appendChild(picture);
  });
  root.querySelectorAll(".u-lane").forEach((lane) => lane.classList.toggle("u-none", !lane.querySelector(".u-mini")));
  if (before) pictures.forEach((picture, n) => {
    const place = picture.getBoundingClientRect();
    const dx = before[n].left - place.left, dy = before[n].top - place.top;
    if (before[n].width && (dx || dy)) picture.animate([{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }], { duration: 450, easing: "ease-in-out" });
  });
  const words = layer === 0 ? "the examples alone" : moved === 1 ? "1 image moved" : moved + " images moved";
  root.querySelector("output").textContent = (layer + 1) + " of " + labels.length + ": " + words;
  root.querySelector("input").value = layer + 1;
};
const begin = () => {
  stop();
  const root = state();
  if (root) show(root.data.labels.length - 1, false);
};
element.addEventListener("input", (event) => {
  if (event.target.type === "range") { stop(); show(Number(event.target.value) - 1, true); }
});
element.addEventListener("click", (event) => {
  const play = event.target.closest(".u-play"), root = state();
  if (!play || !root) return;
  if (timer) return stop();
  const last = root.data.labels.length - 1;
  let layer = Number(root.querySelector("input").value) - 1;
  if (layer >= last) layer = -1;
  play.textContent = "❚❚";
  play.setAttribute("aria-label", "Pause");
  const step = () => { layer += 1; show(layer, true); if (layer >= last) stop(); };
  timer = setInterval(step, 900);
  step();
});
watch("value", begin);
begin();
