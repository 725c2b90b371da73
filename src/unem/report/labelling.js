// Labelled images to look through and to correct: by mouse, by touch, by keyboard. The web page and the contact sheet
// both use it; what differs between them (where pictures are, what becomes of a correction) is the `backend`.

const NONE = -1;
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
const plural = (count, one, many = one + "s") => `${count} ${count === 1 ? one : many}`;
// Rounded down, so that a number and the limit that it is below are never the same; the space does not break.
const percent = (p) => (p >= 1 ? "100" : p > 0.99 ? "> 99" : p > 0 && p < 0.01 ? "< 1" : Math.floor(100 * p + 1e-6)) + "\u00a0%";
// Long names break behind their underscores and hyphens, not in the middle of a word.
const soft = (text) => text.split(/(?<=[_\-./])/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
const byName = new Intl.Collator(undefined, { numeric: true });

class LabelledImages {
  // backend: picture(i, large) gives an address or null; correct(changes), undo(), again() do what they say;
  // layers() gives data, where the method has layers.
  constructor(root, backend) {
    this.root = root;
    this.backend = backend;
    this.tiles = new Map();
    this.selected = new Set();
    this.filter = "all";
    this.only = null;
    this.current = null; // the image that has the focus, or had it last
    this.last = null; // where a range begins
    this.typed = "";
    this.find = (name) => root.querySelector(name);
    this.listen();
  }

  // -- what is shown --------------------------------------------------------------------------------------------------

  show(result, corrections, canUndo) {
    if (!this.result || this.result.number !== result.number) {
      this.result = result;
      this.tiles.clear();
      this.selected.clear();
      this.filter = "all";
      this.only = null;
      this.current = null;
      this.layers = null;
      this.fillClasses();
      this.describe();
    }
    this.result = result;
    this.corrections = new Map(corrections);
    this.canUndo = canUndo;
    this.root.hidden = false;
    this.render();
  }

  hide() {
    this.root.hidden = true;
    this.result = null;
    if (this.find("dialog").open) this.find("dialog").close();
  }

  get below() {
    return Math.min(Math.max(Number(this.find(".below").value) || 0, 0), 100) / 100;
  }

  classOf(i) {
    const image = this.result.images[i];
    return this.corrections.get(i) ?? (image.novel ? NONE : image.label);
  }

  nameOf(k) {
    return k === NONE ? this.result.none : this.result.classes[k];
  }

  isMine(i) {
    return this.corrections.has(i);
  }

  matches(i, filter = this.filter) {
    const image = this.result.images[i];
    if (filter === "doubtful") return !this.isMine(i) && image.p < this.below && !image.novel;
    if (filter === "joint") return !this.isMine(i) && !image.hand && !image.novel && image.alone !== image.label;
    if (filter === "again") return this.isMoved(i);
    if (filter === "mine") return this.isMine(i);
    if (filter === "none") return this.classOf(i) === NONE;
    return true;
  }

  isMoved(i) {
    const image = this.result.images[i];
    return image.was !== null && image.was !== undefined && !image.hand && image.was !== image.label;
  }

  fillClasses() {
    const { classes, none } = this.result;
    const options = () => [...classes.map((name, k) => make("option", { value: k }, `${k + 1}  ${name}`)),
      make("option", { value: NONE }, `0  ${none}`)];
    this.find(".two-digits").hidden = classes.length < 10;
    this.find(".move-to").replaceChildren(...options());
    this.find("dialog .another").replaceChildren(make("option", { value: "" }, "Another class …"), ...options());
  }

  describe() {
    const { result } = this;
    const code = (text) => make("code", {}, text);
    const how = this.find(".how");
    how.replaceChildren(
      result.jointly ? "All images were classified jointly by " : "Each image was classified by itself, by ",
      code(result.method), result.backbone ? " on features of " : "",
      result.backbone ? code(result.backbone === "auto" ? "EfficientNet-Lite0" : result.backbone) : "",
      result.decision === "balanced" ? ", with a balanced decision" : "",
      result.seconds ? `, in ${result.seconds} s` : "", `: ${result.reason}.`);
    this.find(".notes").replaceChildren(...result.notes.map((note) => make("li", {}, `${note}.`)));
    const again = this.find(".again-note");
    const moved = result.images.filter((_, i) => this.isMoved(i)).length;
    again.hidden = !result.again;
    again.querySelector("span").textContent = moved
      ? `Labelled again: ${plural(moved, "other image")} changed class.` : "Labelled again: no other image changed class.";
    again.querySelector("button").hidden = !moved;
    this.compare();
    const layers = this.find(".layers");
    layers.hidden = !result.layers;
    layers.open = false;
  }

  compare() {
    const { classes, images, jointly } = this.result;
    const box = this.find(".compare");
    box.hidden = !jointly;
    if (!jointly) return;
    const counts = classes.map((name, k) => [name, images.filter((x) => x.alone === k).length,
      images.filter((x) => x.label === k && !x.novel).length]).filter(([, a, b]) => a || b).sort((a, b) => b[2] - a[2]);
    const rows = counts.map(([name, a, b]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(a)),
      make("td", {}, String(b))));
    box.querySelector("tbody").replaceChildren(...rows);
  }

  // -- the grid -------------------------------------------------------------------------------------------------------

  order(rows) {
    const { images } = this.result;
    const by = this.find(".order").value;
    const rank = (i) => images[i].rank + (this.isMine(i) ? 1e9 : 0); // what you have said comes last
    if (by === "name") return rows.sort((a, b) => byName.compare(images[a].name, images[b].name));
    if (by === "sure") return rows.sort((a, b) => images[b].rank - images[a].rank);
    return rows.sort((a, b) => rank(a) - rank(b));
  }

  render() {
    const { images, classes } = this.result;
    const kept = document.activeElement?.closest?.(".tile");
    const rows = this.order(images.map((_, i) => i).filter((i) => this.matches(i)));
    const grouped = this.find(".order").value === "class";
    const groups = new Map();
    for (const i of rows) {
      const k = this.classOf(i);
      if (this.only !== null && k !== this.only) continue;
      const key = grouped ? k : "all";
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(i);
    }
    const keys = [...groups.keys()].sort((a, b) => (a === NONE) - (b === NONE) || a - b);
    const sections = keys.map((key) => this.group(key, groups.get(key)));
    this.find(".groups").replaceChildren(...sections);
    this.shown = keys.flatMap((key) => groups.get(key));
    const empty = this.find(".nothing");
    empty.hidden = this.shown.length > 0;
    if (!this.shown.includes(this.current)) this.current = this.shown[0] ?? null;
    for (const i of this.shown) this.tiles.get(i).querySelector(".pic").tabIndex = i === this.current ? 0 : -1;
    this.rail(classes);
    this.chips();
    this.bar();
    if (kept && kept.isConnected && document.activeElement === document.body) this.focus(this.current);
  }

  group(key, rows) {
    const list = make("ul", { class: "grid" }, ...rows.map((i) => this.tile(i)));
    if (key === "all") return list;
    const title = make("h3", {}, make("kbd", {}, String(key === NONE ? 0 : key + 1)), " ", ...soft(this.nameOf(key)), " ",
      make("small", {}, String(rows.length)));
    return make("section", { class: "group", "data-class": key, "aria-label": `${this.nameOf(key)}, ${plural(rows.length, "image")}` },
      title, list);
  }

  tile(i) {
    let tile = this.tiles.get(i);
    if (!tile) {
      const { name } = this.result.images[i];
      const address = this.backend.picture(i, false);
      const picture = address ? make("img", { src: address, alt: "", loading: "lazy", decoding: "async", draggable: "false" })
        : make("span", { class: "row" }, /^row \d+$/.test(name) ? name.replace("row ", "") : "no picture");
      tile = make("li", { class: "tile", "data-i": i, draggable: "true" },
        make("button", { type: "button", class: "pic", tabindex: "-1" }, picture),
        make("input", { type: "checkbox", class: "pick", tabindex: "-1", "aria-label": `Select ${name}` }),
        make("div", { class: "what" }, make("b"), make("div", { class: "sure" }, make("span", { class: "track" }, make("i")), make("span")),
          make("span", { class: "second" }), make("span", { class: "file" }, ...soft(name))));
      this.tiles.set(i, tile);
    }
    this.paint(i, tile);
    return tile;
  }

  paint(i, tile) {
    const image = this.result.images[i], k = this.classOf(i), mine = this.isMine(i), name = this.nameOf(k);
    const doubtful = this.matches(i, "doubtful"), picked = this.selected.has(i);
    tile.classList.toggle("doubtful", doubtful);
    tile.classList.toggle("mine", mine);
    tile.classList.toggle("novel", k === NONE && !mine);
    tile.classList.toggle("picked", picked);
    tile.querySelector(".pick").checked = picked;
    tile.querySelector("b").replaceChildren(...soft(name));
    tile.querySelector(".track i").style.width = mine ? "100%" : `${100 * image.p}%`;
    tile.querySelector(".sure > span:last-child").textContent = mine ? "by you" : k === NONE ? "no class?" : percent(image.p);
    const other = image.top.find(([c]) => c !== image.label);
    let second = other ? `or ${this.result.classes[other[0]]} ${percent(other[1])}` : "";
    if (mine) second = k === image.label || image.hand ? "" : `was ${this.result.classes[image.label]}`;
    else if (this.isMoved(i)) second = `was ${this.result.classes[image.was]} before`;
    else if (this.filter === "joint") second = `by itself ${this.result.classes[image.alone]}`;
    tile.querySelector(".second").replaceChildren(...soft(second));
    const sure = mine ? "labelled by you" : k === NONE ? `perhaps ${this.result.classes[image.label]}` : `${percent(image.p)} sure${doubtful ? ", doubtful" : ""}`;
    tile.querySelector(".pic").setAttribute("aria-label", `${image.name}: ${name}, ${sure}${picked ? ", selected" : ""}`);
  }

  rail(classes) {
    const counts = new Map();
    this.result.images.forEach((_, i) => {
      if (this.matches(i)) counts.set(this.classOf(i), (counts.get(this.classOf(i)) || 0) + 1);
    });
    const chip = (k, key, name, count) => make("button", { type: "button", class: count ? "chip" : "chip empty", "data-only": k, "data-class": k === "" ? null : k,
      "aria-pressed": String(k === "" ? this.only === null : this.only === k) }, key === null ? null : make("kbd", {}, String(key)), make("span", {}, name), make("small", {}, String(count)));
    const total = [...counts.values()].reduce((a, b) => a + b, 0);
    const focused = document.activeElement?.dataset?.only;
    const rail = this.find(".rail");
    rail.replaceChildren(chip("", null, "all classes", total), ...classes.map((name, k) => chip(k, k + 1, name, counts.get(k) || 0)),
      chip(NONE, 0, this.result.none, counts.get(NONE) || 0));
    if (focused !== undefined && document.activeElement === document.body) rail.querySelector(`[data-only="${focused}"]`)?.focus();
  }

  chips() {
    const { images } = this.result;
    for (const input of this.root.querySelectorAll("input[name=show]")) {
      const count = images.filter((_, i) => this.matches(i, input.value)).length;
      input.checked = input.value === this.filter;
      const label = input.closest("label");
      label.querySelector("small").textContent = count;
      label.hidden = (input.value === "again" && !this.result.again) || (input.value === "joint" && !this.result.jointly)
        || (input.value === "none" && !count && !this.result.looked_for_new) || (input.value === "mine" && !count && this.filter !== "mine");
    }
    this.facts();
  }

  facts() {
    const { images, classes, jointly, known } = this.result;
    const count = (filter) => images.filter((_, i) => this.matches(i, filter)).length;
    const present = new Set(images.map((_, i) => this.classOf(i)).filter((k) => k !== NONE)).size;
    const fact = (number, words, small = "") => make("li", {}, make("strong", {}, String(number)), " ", words, small ? make("small", {}, ` ${small}`) : null);
    const facts = [fact(images.length, images.length === 1 ? "image" : "images"), fact(present, `of ${plural(classes.length, "class", "classes")}`),
      fact(count("doubtful"), "doubtful", `below ${Number((100 * this.below).toFixed(2))}\u00a0%`)];
    if (jointly) facts.push(fact(count("joint"), count("joint") === 1 ? "label differs" : "labels differ", "from classifying each image by itself"));
    if (this.result.looked_for_new || count("none")) facts.push(fact(count("none"), "of none of these"));
    if (known) facts.push(fact(`${Math.round((100 * known.right) / known.count)} %`, "right", `of ${known.count} known; ${Math.round((100 * known.alone) / known.count)} % each by itself`));
    if (this.corrections.size) facts.push(fact(this.corrections.size, "labelled by you"));
    this.find(".facts").replaceChildren(...facts);
  }

  bar() {
    const count = this.selected.size, given = this.corrections.size;
    const bar = this.find(".bar");
    bar.querySelector(".selection").hidden = !count;
    bar.querySelector(".selection output").textContent = `${count} selected`;
    const pending = bar.querySelector(".pending");
    pending.hidden = !given && !this.canUndo;
    const used = given && !this.isPending() ? (given === 1 ? ", used" : ", all used") : "";
    pending.querySelector("output").textContent = plural(given, "correction") + used;
    pending.querySelector(".undo").disabled = !this.canUndo;
    bar.hidden = !count && pending.hidden;
    this.backend.pending?.(pending, given, this.isPending());
  }

  isPending() {
    const given = new Map(this.result.given || []);
    return given.size !== this.corrections.size || [...this.corrections].some(([i, k]) => given.get(i) !== k);
  }

  say(words) {
    this.find(".said").textContent = words;
  }

  // -- corrections ----------------------------------------------------------------------------------------------------

  async assign(rows, k) {
    if (!rows.length || (k !== NONE && !(k in this.result.classes))) return;
    const place = this.shown.indexOf(rows[rows.length - 1]);
    const next = this.shown.slice(place + 1).find((i) => !rows.includes(i)) ?? this.shown.find((i) => !rows.includes(i));
    for (const i of rows) this.corrections.set(i, k);
    const inGrid = document.activeElement?.closest?.(".tile");
    this.selected.clear();
    this.canUndo = true;
    if (next !== undefined) this.current = next;
    this.render();
    if (this.find("dialog").open) this.open(this.current);
    else if (inGrid) this.focus(this.current);
    const what = rows.length === 1 ? this.result.images[rows[0]].name : plural(rows.length, "image");
    this.say(`${what}: ${this.nameOf(k)}. ${plural(this.corrections.size, "correction")}.`);
    await this.backend.correct(rows.map((i) => [i, k]));
  }

  async undo() {
    if (!this.canUndo) return;
    await this.backend.undo();
    this.say("The last correction is taken back.");
  }

  targets(i) {
    return this.selected.has(i) ? this.shown.filter((j) => this.selected.has(j)) : [i];
  }

  toggle(i, range = false) {
    const from = this.shown.indexOf(this.last), to = this.shown.indexOf(i);
    const adding = !this.selected.has(i);
    const rows = range && from >= 0 ? this.shown.slice(Math.min(from, to), Math.max(from, to) + 1) : [i];
    for (const j of rows) {
      if (range || adding) this.selected.add(j);
      else this.selected.delete(j);
      this.paint(j, this.tiles.get(j));
    }
    this.last = i;
    this.bar();
    this.say(`${this.selected.size} selected.`);
  }

  unselect() {
    const rows = [...this.selected];
    this.selected.clear();
    for (const i of rows) this.paint(i, this.tiles.get(i));
    this.bar();
  }

  // -- one image, large -----------------------------------------------------------------------------------------------

  open(i) {
    if (i === null || i === undefined) return;
    const dialog = this.find("dialog"), image = this.result.images[i], address = this.backend.picture(i, true);
    this.current = i;
    const picture = dialog.querySelector(".large");
    const shown = address ? make("img", { src: address, alt: image.name }) : make("span", { class: "row" }, image.name);
    picture.replaceChildren(shown);
    dialog.querySelector("h2").textContent = image.name;
    dialog.querySelector(".place").textContent = `${this.shown.indexOf(i) + 1} of ${this.shown.length}`;
    const k = this.classOf(i);
    dialog.querySelector(".now").textContent = this.isMine(i) ? `You say: ${this.nameOf(k)}` : `${this.nameOf(k)}${k === NONE ? "?" : `, ${percent(image.p)} sure`}`;
    const choice = (c, p) => {
      const bar = make("i");
      bar.style.width = `${100 * (p ?? 0)}%`;
      return make("li", {}, make("button", { type: "button", class: "candidate", "data-assign": c, "aria-pressed": String(c === k) },
        make("kbd", {}, String(c === NONE ? 0 : c + 1)), make("span", { class: "name" }, ...soft(this.nameOf(c))), make("span", { class: "track" }, bar),
        make("span", { class: "p" }, p === null ? "" : percent(p))));
    };
    dialog.querySelector(".candidates").replaceChildren(...image.top.map(([c, p]) => choice(c, p)), choice(NONE, null));
    dialog.querySelector(".another").value = "";
    if (!dialog.open) dialog.showModal();
  }

  // The browser would go back to the image that was opened first; people want to go on from the one they are at.
  close() {
    const i = this.current, dialog = this.find("dialog");
    if (!dialog.open) return;
    dialog.close();
    this.focus(i);
  }

  step(by) {
    const place = this.shown.indexOf(this.current) + by;
    if (place >= 0 && place < this.shown.length) this.open(this.shown[place]);
  }

  focus(i) {
    if (i === null || i === undefined || !this.tiles.has(i)) return;
    if (this.current !== null && this.tiles.has(this.current)) this.tiles.get(this.current).querySelector(".pic").tabIndex = -1;
    this.current = i;
    const button = this.tiles.get(i).querySelector(".pic");
    button.tabIndex = 0;
    button.focus();
  }

  neighbour(i, key) {
    const place = this.shown.indexOf(i);
    if (key === "ArrowRight") return this.shown[place + 1];
    if (key === "ArrowLeft") return this.shown[place - 1];
    if (key === "Home") return this.shown[0];
    if (key === "End") return this.shown[this.shown.length - 1];
    const here = this.tiles.get(i).getBoundingClientRect(), down = key === "ArrowDown";
    let best, least = Infinity;
    const rows = down ? this.shown.slice(place + 1) : this.shown.slice(0, place).reverse();
    let row = null;
    for (const j of rows) { // the nearest of the next row
      const there = this.tiles.get(j).getBoundingClientRect();
      if (down ? there.top <= here.top + 2 : there.top >= here.top - 2) continue;
      if (row === null) row = there.top;
      if (Math.abs(there.top - row) > 2) break;
      if (Math.abs(there.left - here.left) < least) [best, least] = [j, Math.abs(there.left - here.left)];
    }
    return best;
  }

  // -- what people do -------------------------------------------------------------------------------------------------

  listen() {
    const { root } = this, grid = this.find(".groups"), dialog = this.find("dialog");
    const indexOf = (element) => (element?.closest(".tile") ? Number(element.closest(".tile").dataset.i) : null);
    grid.addEventListener("click", (event) => {
      const i = indexOf(event.target);
      if (i === null) return;
      if (event.target.closest(".pick")) this.toggle(i, event.shiftKey);
      else if (event.target.closest(".pic")) {
        if (event.shiftKey || event.ctrlKey || event.metaKey) this.toggle(i, event.shiftKey);
        else this.open(i);
      }
    });
    grid.addEventListener("focusin", (event) => {
      const i = indexOf(event.target);
      if (i !== null && event.target.matches(".pic") && i !== this.current) this.focus(i);
    });
    root.addEventListener("keydown", (event) => this.key(event, indexOf(event.target)));
    this.find(".rail").addEventListener("click", (event) => {
      const chip = event.target.closest("[data-only]");
      if (!chip) return;
      this.only = chip.dataset.only === "" ? null : Number(chip.dataset.only);
      this.render();
    });
    root.addEventListener("change", (event) => {
      const { target } = event;
      if (target.name === "show") { this.filter = target.value; this.only = null; this.render(); }
      if (target.matches(".order, .below")) { this.remember(); this.render(); }
      if (target.matches(".another") && target.value !== "") this.assign([this.current], Number(target.value));
    });
    root.addEventListener("click", (event) => {
      const { target } = event;
      if (target.closest(".move")) this.assign(this.shown.filter((i) => this.selected.has(i)), Number(this.find(".move-to").value));
      else if (target.closest(".unselect")) this.unselect();
      else if (target.closest(".undo")) this.undo();
      else if (target.closest(".show-again")) { this.filter = "again"; this.only = null; this.render(); }
      else if (target.closest("[data-assign]")) this.assign([this.current], Number(target.closest("[data-assign]").dataset.assign));
      else if (target.closest(".close") || target === dialog) this.close();
      else if (target.closest(".previous")) this.step(-1);
      else if (target.closest(".next")) this.step(1);
    });
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); this.close(); });
    this.find(".layers").addEventListener("toggle", () => this.watchLayers());
    this.drag(grid, indexOf);
    this.recall();
  }

  key(event, i) {
    const { key } = event, inDialog = this.find("dialog").open;
    if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "z") { event.preventDefault(); this.undo(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input[type=number], input[type=range]")) return;
    if (i === null && !inDialog) { if (key === "Escape") this.unselect(); return; }
    const at = inDialog ? this.current : i;
    if (/^[0-9]$/.test(key)) { event.preventDefault(); this.digit(key, at, inDialog); return; }
    if (key === "u") { event.preventDefault(); this.undo(); return; }
    if (inDialog) {
      if (key === "Escape") { event.preventDefault(); this.close(); }
      if (key === "ArrowRight" || key === "ArrowLeft") { event.preventDefault(); this.step(key === "ArrowRight" ? 1 : -1); }
      return;
    }
    if (key === " ") { event.preventDefault(); this.toggle(i, event.shiftKey); return; }
    if (key === "Escape") { this.unselect(); return; }
    if (/^(Arrow|Home$|End$)/.test(key)) {
      event.preventDefault();
      const next = this.neighbour(i, key);
      if (next === undefined) return;
      if (event.shiftKey) { if (!this.selected.has(i)) this.toggle(i); if (!this.selected.has(next)) this.toggle(next); }
      this.focus(next);
    }
  }

  // Digits are the numbers of the classes; with ten classes and more, one waits a moment for the second digit.
  digit(key, i, inDialog) {
    clearTimeout(this.typing);
    this.typed += key;
    const number = Number(this.typed), { length } = this.result.classes;
    const apply = () => {
      this.typed = "";
      if (number <= length) this.assign(inDialog ? [i] : this.targets(i), number - 1);
    };
    if (number === 0 || number * 10 > length) apply();
    else this.typing = setTimeout(apply, 700);
  }

  drag(grid, indexOf) {
    const { root } = this;
    let rows = null;
    const target = (event) => (rows ? event.target.closest?.("[data-class]") : null);
    const clear = () => root.querySelectorAll(".over").forEach((element) => element.classList.remove("over"));
    grid.addEventListener("dragstart", (event) => {
      const i = indexOf(event.target);
      if (i === null) return;
      rows = this.targets(i);
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", rows.map((j) => this.result.images[j].name).join("\n"));
      root.classList.add("dragging");
    });
    root.addEventListener("dragover", (event) => {
      const there = target(event);
      clear();
      if (!there) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "move";
      there.classList.add("over");
    });
    root.addEventListener("drop", (event) => {
      const there = target(event);
      if (!there) return;
      event.preventDefault();
      this.assign(rows, Number(there.dataset.class));
    });
    root.addEventListener("dragend", () => { rows = null; clear(); root.classList.remove("dragging"); });
  }

  // How it is looked at comes back after a reload.
  remember() {
    try { sessionStorage.setItem("unem-view", JSON.stringify([this.find(".order").value, this.find(".below").value])); } catch { /* not allowed here */ }
  }

  recall() {
    try {
      const [order, below] = JSON.parse(sessionStorage.getItem("unem-view"));
      this.find(".order").value = order;
      this.find(".below").value = below;
    } catch { /* nothing to recall */ }
  }

  // -- layers ---------------------------------------------------------------------------------------------------------

  async watchLayers() {
    const box = this.find(".layers");
    if (!box.open || !this.backend.layers) return;
    this.layers ??= await this.backend.layers();
    if (!this.layers) return;
    const { shares } = this.layers, last = shares.length - 1;
    const most = shares[0].map((_, k) => Math.max(...shares.map((row) => row[k])));
    const classes = most.map((_, k) => k).sort((a, b) => most[b] - most[a]).slice(0, 12).sort((a, b) => shares[last][b] - shares[last][a]);
    const lane = (k) => make("div", { class: "lane", "data-lane": k }, make("div", { class: "lane-name" }, make("b", {}, ...soft(this.nameOf(k))),
      make("span", { class: "share" }), make("span", { class: "track" }, make("i"))), make("div", { class: "lane-pictures" }));
    box.querySelector(".lanes").replaceChildren(...classes.map(lane));
    const slider = box.querySelector("input");
    slider.max = last + 1;
    slider.value = last + 1;
    slider.oninput = () => this.layer(Number(slider.value) - 1);
    box.querySelector(".play").onclick = () => this.play(slider, last);
    this.minis = this.result.images.slice(0, 400).map((image, i) => {
      const address = this.backend.picture(i, false);
      return address ? make("img", { src: address, alt: "", title: image.name }) : make("span", { class: "row", title: image.name }, image.name.replace(/^row /, ""));
    });
    this.layer(last);
  }

  layer(n) {
    const { labels, sure, shares } = this.layers, box = this.find(".layers");
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const before = still ? null : this.minis.map((mini) => mini.getBoundingClientRect());
    let moved = 0;
    const places = {};
    for (const lane of box.querySelectorAll(".lane")) {
      const share = shares[n][Number(lane.dataset.lane)];
      lane.querySelector(".track i").style.width = `${100 * share}%`;
      lane.querySelector(".share").textContent = `${(100 * share).toFixed(1)} %`;
      places[lane.dataset.lane] = lane.querySelector(".lane-pictures");
    }
    this.minis.forEach((mini, i) => {
      const went = n > 0 && labels[n - 1][i] !== labels[n][i];
      moved += went;
      mini.classList.toggle("went", went);
      mini.style.opacity = 0.35 + 0.65 * sure[n][i];
      const place = places[labels[n][i]];
      if (!place) mini.remove();
      else if (mini.parentNode !== place) place.append(mini);
    });
    if (before) this.minis.forEach((mini, i) => {
      if (!mini.isConnected || !before[i].width) return;
      const now = mini.getBoundingClientRect(), dx = before[i].left - now.left, dy = before[i].top - now.top;
      if (dx || dy) mini.animate([{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }], { duration: 400, easing: "ease-in-out" });
    });
    const words = n === 0 ? "the examples alone" : `${plural(moved, "image")} moved`;
    box.querySelector("output").textContent = `${n + 1} of ${labels.length}: ${words}`;
  }

  play(slider, last) {
    clearInterval(this.playing);
    let n = -1;
    const step = () => { n += 1; slider.value = n + 1; this.layer(n); if (n >= last) clearInterval(this.playing); };
    this.playing = setInterval(step, 900);
    step();
  }
}

export { LabelledImages, byName, make, plural };
