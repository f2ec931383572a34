// Tables of samples by number of codes (docs/gallery.md) become one grid with a slider. Without scripts the table is shown.
"use strict";

const TABLE = 'img[src$="-by-code.png"]';
const SAMPLES = 16; // rows of a table: ROWS in scripts/build_gallery.py; tiles are square

function slider(image) {
  const tile = image.naturalHeight / SAMPLES;
  const length = Math.round(image.naturalWidth / tile);
  const side = Math.sqrt(SAMPLES);
  const canvas = Object.assign(document.createElement("canvas"), { width: side * tile, height: side * tile });
  const range = Object.assign(document.createElement("input"), { type: "range", min: 1, max: length, value: length });
  const text = document.createElement("output");
  const play = Object.assign(document.createElement("button"), { type: "button", textContent: "Play" });
  range.setAttribute("aria-label", `${image.alt}: number of codes`);
  canvas.setAttribute("role", "img");
  play.className = "md-button";

  const draw = () => {
    const column = Number(range.value) - 1;
    for (let row = 0; row < SAMPLES; row++) {
      const x = (row % side) * tile, y = Math.floor(row / side) * tile;
      canvas.getContext("2d").drawImage(image, column * tile, row * tile, tile, tile, x, y, tile, tile);
    }
    text.textContent = `${range.value} of ${length} codes`;
    canvas.setAttribute("aria-label", `${image.alt}: ${text.textContent}`);
  };

  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
  const advance = () => {
    if (Number(range.value) >= length) return stop();
    range.value = Number(range.value) + 1;
    draw();
  };
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (Number(range.value) >= length) range.value = 1;
    draw();
    play.textContent = "Stop";
    timer = setInterval(advance, 250);
  });
  range.addEventListener("input", () => { if (timer !== null) stop(); draw(); });

  const controls = document.createElement("div");
  controls.append(play, range, text);
  const all = document.createElement("details");
  all.append(Object.assign(document.createElement("summary"), { textContent: "All lengths side by side" }));
  const figure = Object.assign(document.createElement("div"), { className: "by-code" });
  figure.append(canvas, controls, all);
  image.replaceWith(figure);
  all.append(image);
  draw();
}

for (const image of document.querySelectorAll(TABLE)) {
  image.loading = "eager";
  image.decode().then(() => slider(image), () => {});
}
