
// The contact sheet: the same page as the live one, whose corrections are downloaded instead of sent.
const result = JSON.parse(document.getElementById("data").textContent);
const memory = `unem-sheet-${result.digest}`;
const history = [];
let corrections = new Map(result.given), saved = true;
try { corrections = new Map(JSON.parse(localStorage.getItem(memory)) || result.given); } catch { /* not allowed here */ }

const keep = () => {
  saved = false;
  try { localStorage.setItem(memory, JSON.stringify([...corrections])); saved = true; } catch { /* not allowed here */ }
};

// As the tables of the library: what a spreadsheet would take for a formula gets an apostrophe in front.
const cell = (text) => {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
};

const download = () => {
  const rows = [...corrections].sort(([a], [b]) => a - b).map(([i, k]) => `${cell(result.images[i].name)},${cell(k === NONE ? result.none : result.classes[k])}`);
  const link = make("a", { href: URL.createObjectURL(new Blob([["path,label", ...rows, ""].join("\r\n")], { type: "text/csv" })), download: "unem-corrections.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  saved = true;
};

const button = make("button", { type: "button", class: "primary" }, "Download corrections (CSV)");
button.addEventListener("click", download);
const sheet = new LabelledImages(document.getElementById("labelled"), {
  picture: (i) => result.images[i].picture,
  correct: async (changes) => {
    history.push(changes.map(([i]) => [i, before.get(i)]));
    before = new Map(corrections = new Map(sheet.corrections));
    keep();
  },
  undo: async () => {
    for (const [i, k] of history.pop() || []) {
      if (k === undefined) corrections.delete(i);
      else corrections.set(i, k);
    }
    before = new Map(corrections);
    keep();
    sheet.show(result, [...corrections], history.length > 0);
  },
  pending: (box, count) => {
    if (!button.isConnected) box.append(button);
    button.hidden = !count;
  },
});
let before = new Map(corrections);
sheet.show(result, [...corrections], false);
addEventListener("beforeunload", (event) => { if (!saved) event.preventDefault(); });
