// The live page: sends files, shows how far the work is, and hands the answer to labelling.js. A reload brings
// everything back, since the server has it.
import { LabelledImages, byName, make, plural } from "/static/labelling.js";

const $ = (selector) => document.querySelector(selector);
const form = $("meta[name=unem-form]").content;
const most = Number(document.body.dataset.most);
const endings = document.body.dataset.endings.split(" ");
const STAGES = { unpack: "Unpacking", decode: "Opening images", model: "Loading the model", features: "Looking at the images", labels: "Labelling" };
const BUSY = ["waiting", "running"];
const AT_ONCE = 2;
const TRIES = 5;
const sending = { support: false, query: false };
const others = { support: [], query: [] }; // files of chosen folders that are not sent, since they are no images
let state = null, known = -1, posting = 0, job = null;
let ended = null; // number of the last work that is over; what was over before this page was opened is no news

// -- talking with the server --------------------------------------------------------------------------------------------

const trouble = (words) => {
  const line = $("#trouble");
  line.textContent = words || "";
  line.hidden = !words;
  if (words) line.scrollIntoView({ block: "nearest" });
};

// What a side says of itself is not said twice.
const failed = (error) => {
  const told = Boolean(error) && error === state?.support.problem;
  trouble(told ? "" : error);
  if (told) $("#support .sent .problem")?.scrollIntoView({ block: "nearest" });
};

const post = async (path, body = {}) => {
  posting += 1;
  trouble("");
  try {
    const answer = await fetch(path, { method: "POST", headers: { "X-Unem-Form": form, "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const data = await answer.json().catch(() => ({}));
    if (!answer.ok) { trouble(data.error || "The server refused it."); return null; }
    return data;
  } catch {
    trouble("The server cannot be reached. Is it still running?");
    return null;
  } finally {
    posting -= 1;
  }
};

const refresh = async () => {
  try {
    const answer = await fetch("/state");
    const data = await answer.json();
    if (!answer.ok) return trouble(data.error);
    state = data;
    known = data.changes;
    render();
  } catch {
    trouble("The server cannot be reached. Is it still running?");
  }
};

const listen = () => {
  const events = new EventSource("/events");
  events.onmessage = ({ data }) => {
    const news = JSON.parse(data), busy = BUSY.includes(news.job?.status), number = news.job?.number ?? 0;
    const over = !busy && ended !== null && number > ended;
    if (!busy) ended = number;
    if (!posting || over || busy) showJob(news.job, over); // else the work that was just asked for has not begun
    if ((news.changes !== known && !posting) || over) refresh();
  };
  events.addEventListener("gone", () => {
    events.close();
    trouble("Everything of this visit has been removed. Reload the page to begin anew.");
  });
};

// -- progress ---------------------------------------------------------------------------------------------------------

const time = (seconds) => (seconds < 1.5 ? "a second" : seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`);

const showJob = (now, over) => {
  job = now;
  const busy = Boolean(now && BUSY.includes(now.status));
  const box = $("#work"), bar = box.querySelector("progress");
  box.hidden = !busy;
  $("#go").disabled = busy || sending.support || sending.query;
  document.querySelectorAll("[data-example], [data-clear], [data-open], .label-again").forEach((button) => { button.disabled = busy; });
  if (busy) {
    if (now.number) ended ??= now.number - 1; // its end is news, even if it comes before the first event
    const what = now.stage ? STAGES[now.stage] : "Waiting for a turn";
    const counted = now.stage && now.stage !== "labels" && now.total > 1;
    let words = counted ? `${what}: ${now.done} of ${plural(now.total, "image")}` : `${what} …`;
    if (now.stage === "labels") words = `Labelling ${plural(now.total, "image")} …`;
    if (now.seconds_left !== null && now.seconds_left !== undefined) words += `, about ${time(now.seconds_left)} left`;
    if ($("#progress-words").textContent !== words) $("#progress-words").textContent = words;
    if (counted) bar.value = now.done / now.total;
    else bar.removeAttribute("value");
  }
  if (over && now.status === "failed") failed(now.error);
  if (over && now.status === "cancelled") trouble("Cancelled.");
  if (over && now.status === "done") arrived = true;
};
let arrived = false; // an answer has come while this page was open: go there

// -- what was sent ----------------------------------------------------------------------------------------------------

const showSide = (name) => {
  const side = state[name], box = $(`#${name}`), parts = [];
  const what = side.features ? "row" : "image";
  if (side.images) {
    const classes = name === "support" ? ` of ${plural(side.classes.length, "class", "classes")}` : "";
    parts.push(make("strong", {}, plural(side.images, what) + classes));
    if (name === "support") parts.push(make("ul", { class: "class-list" }, ...side.classes.map(([label, count]) => make("li", {}, `${label} `, make("small", {}, String(count))))));
    if (side.pictures) parts.push(make("div", { class: "faces" }, ...side.faces.map((i) => make("img", { src: `/picture/${name}/${i}?k=${side.key}`, alt: "" }))));
  }
  if (side.problem) {
    const swap = make("button", { type: "button" }, "Swap the two sides");
    swap.onclick = async () => {
      if (await post("/swap")) [others.support, others.query] = [others.query, others.support];
      refresh();
    };
    parts.push(make("p", { class: "problem" }, side.problem, side.problem.includes("swapped") ? swap : null));
  }
  if (side.left_out_count) {
    const rest = side.left_out_count - side.left_out.length;
    parts.push(make("div", { class: "problem", role: "alert" }, `${plural(side.left_out_count, "file")} left out:`, make("ul", {},
      ...side.left_out.map(([file, reason]) => make("li", {}, make("b", {}, file), ` ${reason}`)), rest ? make("li", {}, `and ${rest} more`) : null)));
  }
  if (others[name].length) {
    const names = others[name].slice(0, 3).map((path) => `'${path}'`).join(", ") + (others[name].length > 3 ? ", …" : "");
    parts.push(make("p", { class: "muted others" }, `${plural(others[name].length, "file has no image extension and was", "files have no image extension and were")} left out: ${names}`));
  }
  box.querySelector(".sent").replaceChildren(...parts);
  box.querySelector("[data-clear]").hidden = !side.images && !side.left_out_count && !side.waiting && !others[name].length;
};

const attempt = (side, { file, path }, told) => new Promise((done) => {
  const request = new XMLHttpRequest();
  request.open("POST", `/files/${side}`);
  request.setRequestHeader("X-Unem-Form", form);
  request.setRequestHeader("X-Unem-Name", encodeURIComponent(path));
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.upload.onprogress = (event) => told(event.loaded);
  request.onload = () => {
    let problem = "";
    if (request.status !== 200) try { problem = JSON.parse(request.responseText).error; } catch { problem = `${path}: the server refused it.`; }
    done({ problem, busy: request.status === 409 });
  };
  request.onerror = () => done({ problem: `${path}: the connection broke off.`, busy: false });
  request.send(file);
});

const idle = async () => {
  do await new Promise((done) => setTimeout(done, 200));
  while (BUSY.includes((await (await fetch("/state")).json()).job?.status));
};

// Files of one side that come while those of the other are looked at wait for that to end.
const send = async (side, one, told) => {
  for (let tries = 1; ; tries += 1) {
    const { problem, busy } = await attempt(side, one, told);
    if (!busy || tries === TRIES) return problem;
    await idle().catch(() => {});
  }
};

const take = async (side, found) => {
  if (!found.length || sending[side]) return;
  const files = found.filter(isSent);
  others[side] = [...new Set([...others[side], ...found.filter((one) => !isSent(one)).map(({ path }) => path)])].sort(byName.compare);
  const box = $(`#${side}`), bar = box.querySelector("progress"), status = box.querySelector(".status"), refusedBox = box.querySelector(".refused");
  const refused = [], queue = [];
  for (const one of files) {
    if (one.file.size > most) refused.push(`${one.path}: has ${Math.round(one.file.size / 1e6)} MB, more than the ${Math.round(most / 1e6)} MB that may be sent`);
    else queue.push(one);
  }
  const count = queue.length, total = queue.reduce((sum, f) => sum + f.file.size, 0) || 1;
  let done = 0, sent = 0;
  sending[side] = true;
  showJob(job, false);
  refusedBox.hidden = true;
  bar.hidden = !count;
  const worker = async () => {
    while (queue.length && refused.length <= 20) {
      const one = queue.shift();
      let now = 0;
      const problem = await send(side, one, (loaded) => { sent += loaded - now; now = loaded; bar.value = Math.min(sent / total, 1); });
      sent += one.file.size - now;
      done += 1;
      bar.value = Math.min(sent / total, 1);
      status.textContent = `Sent ${done} of ${plural(count, "file")}`;
      if (problem) refused.push(problem);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  sending[side] = false;
  bar.hidden = true;
  status.textContent = "";
  if (refused.length) {
    const few = refused.slice(0, 5).map((words) => make("li", {}, words));
    if (refused.length > 5) few.push(make("li", {}, `and ${refused.length - 5} more`));
    refusedBox.replaceChildren(make("ul", {}, ...few));
    refusedBox.hidden = false;
  }
  showJob(job, false);
  if (done > 0 && !sending.support && !sending.query) await post("/look");
  refresh();
};

const usable = (name) => endings.some((ending) => name.toLowerCase().endsWith(ending));
const isHidden = (path) => path.includes("/") && /(^|\/)\./.test(path);
const isSent = ({ path }) => !path.includes("/") || usable(path); // of loose files the server says what is wrong
const named = (list) => Array.from(list, (file) => ({ file, path: file.webkitRelativePath || file.name })).filter(({ path }) => !isHidden(path));

const walk = async (entry, into) => {
  if (entry.isFile) {
    const file = await new Promise((yes, no) => entry.file(yes, no));
    const path = entry.fullPath.replace(/^\//, "");
    if (!isHidden(path)) into.push({ file, path });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((yes, no) => reader.readEntries(yes, no));
    if (!some.length) return;
    for (const child of some) await walk(child, into);
  }
};

for (const box of document.querySelectorAll(".side")) {
  const { side } = box.dataset;
  box.addEventListener("change", (event) => {
    const files = named(event.target.files);
    event.target.value = "";
    take(side, files);
  });
  box.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.open) box.querySelector(`input.${button.dataset.open}`).click();
    if (button && "clear" in button.dataset) { box.querySelector(".refused").hidden = true; others[side] = []; await post(`/clear/${side}`); refresh(); }
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    box.addEventListener(kind, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      box.classList.toggle("over", kind === "dragover");
    });
  }
  box.addEventListener("drop", async (event) => {
    const entries = Array.from(event.dataTransfer.items || [], (item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (!entries.length) return take(side, named(event.dataTransfer.files));
    const files = [];
    for (const entry of entries) await walk(entry, files);
    take(side, files);
  });
}

// -- the answer -------------------------------------------------------------------------------------------------------

const settings = () => {
  const how = $("#how");
  return { method: how.querySelector("[name=method]").value, backbone: how.querySelector("[name=backbone]").value,
    decision: how.querySelector("[name=decision]").value, none_of_these: how.querySelector("[name=none_of_these]").checked };
};

const again = make("button", { type: "button", class: "primary label-again" }, "Label again");
const grid = new LabelledImages($("#labelled"), {
  picture: (i, large) => (state.result.images[i].picture ? `/picture/query/${i}?k=${state.query.key}${large ? "&large" : ""}` : null),
  correct: async (changes) => {
    const answer = await post("/corrections", { changes });
    if (!answer) return refresh();
    known = Math.max(known, answer.changes);
    $("#corrections").parentElement.hidden = false;
    return undefined;
  },
  undo: async () => { await post("/undo"); await refresh(); },
  layers: async () => (await fetch("/layers")).json(),
  pending: (box, count, isPending) => {
    if (!again.isConnected) box.append(again);
    again.hidden = !isPending;
    again.textContent = count ? `Label again with ${plural(count, "correction")}` : "Label again";
  },
});

const render = () => {
  for (const side of ["support", "query"]) showSide(side);
  showJob(state.job, false);
  if (state.job?.status === "failed" && !state.result) failed(state.job.error);
  const { result } = state, counted = [];
  for (const [side, what] of [["support", "example"], ["query", "image"]]) if (state[side].images) counted.push(plural(state[side].images, what));
  $("#send summary span").textContent = counted.length ? `(${counted.join(", ")})` : "";
  for (const [name, value] of Object.entries(state.settings)) {
    const input = $(`#how [name=${name}]`);
    if (input.type === "checkbox") input.checked = value;
    else input.value = value;
  }
  $("#welcome").hidden = Boolean(result);
  $("#results-head").hidden = !result;
  $("#command").hidden = !result?.command;
  if (!result) { grid.hide(); $("#send").open = true; return; }
  $("#zip").parentElement.hidden = !result.files;
  $("#corrections").parentElement.hidden = !state.corrections.length;
  $("#command pre code").textContent = result.command || "";
  const fresh = grid.result?.number !== result.number;
  if (fresh) $("#send").open = false;
  grid.show(result, state.corrections, state.can_undo);
  if (fresh && arrived) {
    arrived = false;
    $("#results-title").focus({ preventScroll: true });
    $("#results-head").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
};

const label = async () => {
  trouble("");
  showJob({ status: "waiting", stage: null }, false); // at once, before the server has said anything
  if (!(await post("/label", settings()))) refresh();
};
$("#go").addEventListener("click", label);
again.addEventListener("click", label);
$("#cancel").addEventListener("click", () => post("/cancel"));
$("#forget").addEventListener("click", async () => { if (await post("/forget")) location.reload(); });
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", async () => {
    showJob({ status: "waiting", stage: null }, false);
    if (!(await post(`/example/${button.dataset.example}`, settings()))) refresh();
  });
}
refresh().then(listen);
