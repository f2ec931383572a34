// The page: samples that sharpen live, and every moment of them again from memory. The samples come from `anytime serve`, or
// from a model inside the browser (`anytime export --to web`): whichever `source.js` lies beside this file.

import { Problem } from "./problem.js";
import { openSource } from "./source.js";

/**
 * What `openSource` returns, a source of samples. The page uses nothing else, so a model inside the browser can take the
 * server's place. All methods but `authorize` return promises; they fail with a `Problem`.
 *
 * models(): a list of {id, length, shape, sample_rate, temperature}, the default model first.
 * sample({model, n, seed, prefix, temperature, deadline_ms}, onRefinement, signal, onWait): the final refinement.
 *   `onRefinement` gets every one, the final one included: {model, codes, requested, length, shortened, seconds, code_rows,
 *   media_type, samples}, where samples are base64 files. `onWait` may get sentences that say what is waited for.
 * stats(): the present load, {queue, answers_per_second, codes_per_answer}. Optional: without it the page has no chart.
 * notes(): {text, link}, a paragraph about where the samples come from and {text, href} of a link after it, or null. Optional.
 * authorize(token): use a token from now on, after a problem with status 401. Optional: for a source that needs one.
 */

const NUMBERS = ["seed", "n", "temperature"]; // fields of the form and of the URL
const MAX_TILES = 256;
const REPLAY_MS = 2400;
const STATS_MS = 1000;
const CHART_MS = 60_000;

const source = openSource();
const get = (id) => document.getElementById(id);
const randomSeed = () => Math.floor(Math.random() * 1e6);
const numberOrNull = (text) => (text ? Number(text) : null);
const momentShown = () => moments[Math.min(chosen, moments.length - 1)];
const milliseconds = (seconds) => `${Math.round(1000 * seconds)} ms`;
const grid = get("grid");

let view = readUrl(); // what determines the samples
let moments = []; // the refinements of the grid, the coarsest first
let chosen = Infinity; // index of the moment to show, or of one that is yet to come
let stream = new AbortController();
let replayTimer = 0;
let models = []; // empty until they are known
let load = []; // stats of the last minute, each with its time `at`

// The URL

function readUrl() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const whole = (name, otherwise) => {
    const value = Number(fields.get(name) || NaN);
    return Number.isSafeInteger(value) ? value : otherwise;
  };
  return {
    model: fields.get("model"),
    seed: whole("seed", randomSeed()),
    n: whole("n", 16),
    temperature: numberOrNull(fields.get("temperature")),
    prefix: fields.get("prefix") ? fields.get("prefix").split(",").map(Number) : [],
  };
}

function urlOf({ prefix, ...others }) {
  const fields = Object.entries({ ...others, prefix: prefix.join(",") }).filter(([, value]) => value !== null && value !== "");
  return "#" + new URLSearchParams(fields).toString().replaceAll("%2C", ",");
}

/** Sample with some settings changed. Another URL is another entry of the browser's history. */
function go(change) {
  view = { ...view, ...change };
  if (urlOf(view) !== location.hash) history.pushState({ depth: (history.state?.depth ?? 0) + 1 }, "", urlOf(view));
  sample();
}

// Sampling

/** Sample what `view` says; a stream that this supersedes is aborted. */
async function sample() {
  stream.abort();
  stream = new AbortController();
  const { signal } = stream;
  clearInterval(replayTimer);
  [moments, chosen] = [[], Infinity];
  const { prefix, ...others } = view;
  const request = { ...others, prefix: prefix.length ? [prefix] : null, deadline_ms: numberOrNull(get("deadline").value) };
  try {
    const ifCurrent = (action) => (value) => signal.aborted || action(value);
    const running = source.sample(request, ifCurrent(add), signal, ifCurrent(say));
    showWaiting();
    const final = await running;
    if (!signal.aborted) say(summary(final, request));
  } catch (problem) {
    if (!signal.aborted) fail(problem);
  }
}

function summary({ codes, requested, shortened, seconds, samples }, { n, deadline_ms: deadline }) {
  const rows = samples.length < n ? `, ${samples.length} of ${n} samples,` : "";
  const text = (shortened ? `Shortened to ${codes} of ${requested} codes` : `All ${codes} codes`) + rows;
  const late = deadline && 1000 * seconds > deadline ? `, later than the deadline of ${deadline} ms` : "";
  return `${text} in ${milliseconds(seconds)}${late}.`;
}

function add(refinement) {
  moments.push(refinement);
  if (!view.model) view.model = refinement.model; // the default one
  if (location.hash !== urlOf(view)) history.replaceState(history.state, "", urlOf(view)); // complete, for sharing
  show();
}

function fail(problem) {
  if (!(problem instanceof Problem)) console.error(problem);
  if (problem.status === 401) return askForToken();
  if (!moments.length) [grid.dataset.state, get("moment-text").textContent] = ["empty", "–"];
  const text = problem.message;
  say("", text[0].toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : "."));
}

/** Say in one sentence how the sampling goes, or why it failed. */
function say(text, error = "") {
  get("status").textContent = text;
  get("error").textContent = error;
}

// The grid and its moments

/** Make `n` empty samples of a media type, unless they are there already. */
function buildTiles(n, media) {
  if (grid.children.length === n && grid.dataset.media === media) return;
  grid.dataset.media = media;
  grid.style.setProperty("--columns", Math.ceil(Math.sqrt(n)));
  grid.replaceChildren(...Array.from({ length: n }, (_, index) => buildTile(index, media.startsWith("audio/"))));
}

function buildTile(index, isAudio) {
  const [tile, button] = [document.createElement("li"), document.createElement("button")];
  const player = document.createElement(isAudio ? "audio" : "img");
  Object.assign(button, { type: "button", tabIndex: index ? -1 : 0 }); // one tab stop; arrow keys move from there
  button.setAttribute("aria-label", `More like this: sample ${index + 1}`);
  button.addEventListener("click", () => moreLike(index));
  if (isAudio) {
    Object.assign(player, { controls: true, ariaLabel: `Sample ${index + 1}` });
    player.addEventListener("pause", () => moments.length && show());
    button.textContent = "More like this";
    tile.append(player, button);
  } else {
    player.alt = "";
    const { dataset } = document.documentElement; // notes the time of the first image since the page was opened
    player.addEventListener("load", () => (dataset.firstSampleMs ??= performance.now().toFixed(1)), { once: true });
    button.append(player);
    tile.append(button);
  }
  return tile;
}

/** Show that a grid is on its way, and what it will be. */
function showWaiting() {
  grid.dataset.state = "waiting";
  buildTiles(Math.min(view.n, MAX_TILES), grid.dataset.media ?? "image/png");
  for (const id of NUMBERS) get(id).value = view[id] ?? "";
  get("prefix").hidden = get("remove-prefix").disabled = !view.prefix.length;
  get("prefix-codes").textContent = view.prefix.join(" ");
  get("back").disabled = !(history.state?.depth > 0);
  get("moment").disabled = get("replay").disabled = true;
  showModel();
  say("Sampling…");
}

/** Show the chosen moment. Audio that is playing plays on; it changes when it pauses. */
function show() {
  const { codes, requested, length, seconds, samples, media_type: media } = momentShown();
  buildTiles(samples.length, media);
  grid.dataset.state = "ready";
  grid.querySelectorAll("img, audio").forEach((player, index) => {
    const file = `data:${media};base64,${samples[index]}`;
    if (player.paused !== false && player.getAttribute("src") !== file) player.src = file;
  });
  const text = `${codes} of ${length} codes, ${milliseconds(seconds)}`;
  get("moment-text").textContent = text;
  get("moment").setAttribute("aria-valuetext", text);
  Object.assign(get("moment"), { disabled: false, max: requested, value: codes });
  get("replay").disabled = moments.length < 2;
  if (Number(get("keep").max) !== length) Object.assign(get("keep"), { max: length, value: Math.ceil(length / 4) });
  get("keep-text").textContent = get("keep").value;
}

/** Show another moment; the newest one follows the stream. */
function choose(index) {
  chosen = index < moments.length - 1 ? index : Infinity;
  show();
}

/** Show the next moment in the direction in which the slider moves: not every number of codes has one. */
function slide() {
  clearInterval(replayTimer);
  const codes = Number(get("moment").value);
  const longer = moments.findIndex((moment) => moment.codes >= codes);
  const shorter = moments.findLastIndex((moment) => moment.codes <= codes);
  if (codes > momentShown().codes) choose(longer < 0 ? Infinity : longer);
  else choose(Math.max(0, shorter));
}

/** Show all moments again, slowly enough to watch. */
function replay() {
  clearInterval(replayTimer);
  let next = 0;
  choose(next++);
  replayTimer = setInterval(() => {
    choose(next++);
    if (next >= moments.length) clearInterval(replayTimer);
  }, REPLAY_MS / moments.length);
}

/** Sample with the first codes of a sample as prefix, and another seed. */
function moreLike(index) {
  if (!moments.length) return;
  const codes = moments.at(-1).code_rows[index];
  go({ prefix: codes.slice(0, Number(get("keep").value)), seed: randomSeed() });
}

/** Move the focus between samples by arrow keys. */
function moveFocus(event) {
  const buttons = [...grid.querySelectorAll("button")];
  const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const next = buttons[buttons.indexOf(event.target) + step];
  if (!buttons.includes(event.target) || !next) return;
  event.preventDefault();
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next.focus();
}

// Models, settings and the token

async function loadModels() {
  models = await source.models().catch(() => []); // the sampling that goes with it shows the error
  get("model").replaceChildren(...models.map(({ id }) => new Option(id)));
  get("model-field").hidden = models.length < 2;
  showModel();
}

function showModel() {
  const model = view.model ? models.find(({ id }) => id === view.model) : models[0];
  if (!model) return;
  const size = model.sample_rate ? `${model.sample_rate} Hz` : model.shape.slice(1).join(" × ");
  get("facts").textContent = `${model.id} · ${model.length} codes · ${size}`;
  get("model").value = model.id;
  get("temperature").placeholder = model.temperature;
}

async function showNotes() {
  const { text, link } = await source.notes();
  get("notes").textContent = text + (link ? " " : "");
  if (link) get("notes").append(Object.assign(document.createElement("a"), { textContent: link.text, href: link.href }));
  get("notes").hidden = false;
}

function askForToken() {
  const form = get("token-form");
  get("token-text").textContent = form.dataset.tried ? "The token was not accepted." : "This server needs a token.";
  form.hidden = false;
  say("Waiting for a token.");
  get("token").focus();
}

function submitToken() {
  source.authorize(get("token").value);
  get("token").value = "";
  get("token-form").hidden = get("token-form").dataset.tried = true;
  start();
}

// The chart

async function pollStats() {
  if (document.hidden || !get("token-form").hidden) return;
  const stats = await source.stats().catch(() => null);
  const now = performance.now();
  load = load.filter(({ at }) => now - at < CHART_MS);
  if (stats) load.push({ at: now, ...stats });
  if (load.length) drawLoad(now);
}

function drawLoad(now) {
  const mostLoad = Math.max(1, ...load.flatMap((stats) => [stats.answers_per_second, stats.queue]));
  const mostCodes = Number(get("keep").max);
  [get("most-load").textContent, get("most-codes").textContent] = [mostLoad, mostCodes];
  drawLine(get("answers-line"), now, "answers_per_second", mostLoad, 64);
  drawLine(get("queue-line"), now, "queue", mostLoad, 64);
  drawLine(get("codes-line"), now, "codes_per_answer", mostCodes, 134);
  const { answers_per_second: answers, queue, codes_per_answer: codes } = load.at(-1);
  const mean = codes === null ? "" : `, ${codes.toFixed(1)} codes per answer`;
  get("load-text").textContent = `Now: ${answers} answers per second, ${queue} in the queue${mean}.`;
}

/** Draw a value over the last minute, above a base line; there are gaps where it is null. */
function drawLine(line, now, name, most, base) {
  let [path, pen] = ["", "M"];
  for (const { at, [name]: value } of load) {
    const [x, y] = [372 - (368 * (now - at)) / CHART_MS, base - (40 * Math.min(value, most)) / most];
    if (value !== null) path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}h0`; // h0: a point alone is a dot
    pen = value === null ? "M" : "L";
  }
  line.setAttribute("d", path);
}

/** Sample first: the list of models must not delay the first image. */
function start() {
  sample();
  loadModels();
}

function on(id, type, action) {
  get(id).addEventListener(type, (event) => {
    if (type === "submit") event.preventDefault();
    action(event);
  });
}

on("grid", "keydown", moveFocus);
on("moment", "input", slide);
on("replay", "click", replay);
on("keep", "input", () => void (get("keep-text").textContent = get("keep").value));
on("controls", "submit", () => go(Object.fromEntries(NUMBERS.map((id) => [id, numberOrNull(get(id).value)]))));
on("model", "change", () => go({ model: get("model").value, temperature: null, prefix: [] }));
on("new-seed", "click", () => go({ seed: randomSeed() }));
on("back", "click", () => history.back());
on("remove-prefix", "click", () => go({ prefix: [] }));
on("token-form", "submit", submitToken);
addEventListener("popstate", () => ((view = readUrl()), sample()));
if (source.stats) setInterval(pollStats, STATS_MS);
else get("load").hidden = true;
start();
if (source.notes) showNotes();
