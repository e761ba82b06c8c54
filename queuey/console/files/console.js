"use strict";
// The console works without this script.

const SPANS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [86400 * 60, 86400, "days"]];

// Times are the server's: the clock of this computer may be wrong.
const SERVED = Number(document.body.dataset.served) * 1000;
const AHEAD = Date.now() - SERVED;

function ago(then) {
  const seconds = (Date.now() - AHEAD - then) / 1000;
  for (const [most, unit, name] of SPANS) {
    if (Math.abs(seconds) < most) {
      const text = `${Math.floor(Math.abs(seconds) / unit)} ${name}`;
      return seconds >= 0 ? `${text} ago` : `in ${text}`;
    }
  }
  return new Date(then).toISOString().slice(0, 10);
}

function refreshTimes() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const then = Date.parse(element.dateTime);
    if (!Number.isNaN(then)) element.textContent = ago(then);
  }
}

function offerCopies() {
  for (const element of document.querySelectorAll("pre.copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(element.textContent);
      button.textContent = "Copied";
    });
    element.before(button);
  }
}

const DOUBLE_CLICK_MS = 1000;

// The second click of a double click sends no form again.
document.addEventListener("submit", (event) => {
  const form = event.target;
  const first = Number(form.dataset.sent ?? -DOUBLE_CLICK_MS);
  if (event.timeStamp - first < DOUBLE_CLICK_MS) event.preventDefault();
  else form.dataset.sent = event.timeStamp;
});

setInterval(refreshTimes, 10_000);
if (navigator.clipboard) offerCopies();

// A stream of events, told as lost when it breaks. EventSource tries again by itself, unless the server refused.
function follow(root, address, handlers, state) {
  const lost = root.querySelector(".lost");
  let since = null;
  let source = null;
  let last = "";
  const say = () => {
    lost.hidden = since === null;
    if (since === null) return;
    const ended = source.readyState === EventSource.CLOSED;
    lost.textContent = `No connection since ${new Date(since).toLocaleTimeString()}. `;
    if (ended) lost.append("The server refuses: maybe your session has ended. Load the page again to sign in. ");
    const again = document.createElement("button");
    again.textContent = "Try now";
    again.addEventListener("click", open);
    lost.append(again);
  };
  // Behind the last event that came, if events have ids: none comes twice. A cursor says all, so it stands alone.
  const goesOn = () => (last ? `${address.split("?")[0]}?cursor=${encodeURIComponent(last)}` : address);
  function open() {
    source?.close();
    source = new EventSource(goesOn());
    source.addEventListener("open", () => { since = null; say(); state?.(true); });
    source.addEventListener("error", () => { since ??= Date.now(); say(); state?.(false); });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        last = event.lastEventId;
        handle(JSON.parse(event.data), event);
      });
    }
  }
  // A tab that nobody looks at keeps no connection: browsers have six for a server, and all tabs share them.
  const look = () => (document.hidden ? source?.close() : open());
  document.addEventListener("visibilitychange", look);
  look();
}

function short(number) {
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (number >= 10 * size || (number >= size && size > 1e3)) return (number / size).toFixed(1) + unit;
  }
  return Number.isInteger(number) ? number.toLocaleString("en") : number.toFixed(number < 10 ? 2 : 0);
}

function sized(number) {
  for (const [power, unit] of [[3, "GiB"], [2, "MiB"], [1, "KiB"]]) {
    if (number >= 1024 ** power) return `${(number / 1024 ** power).toFixed(1)} ${unit}`;
  }
  return `${Math.round(number)} B`;
}

const CHART_POINTS = 240;
const HOUR = 3600;

// The same line as the server draws: the greatest of some neighbours is a point, and the newest stands at the right.
function draw(chart, values) {
  const step = Math.ceil(values.length / CHART_POINTS) || 1;
  const kept = [];
  for (let end = values.length; end > 0; end -= step) kept.unshift(Math.max(...values.slice(Math.max(end - step, 0), end)));
  const most = Math.max(...kept, 0);
  const first = CHART_POINTS - kept.length;
  const points = kept.map((value, place) => `${first + place},${Math.round(100 - (100 * value) / (most || 1))}`);
  chart.querySelector("polyline").setAttribute("points", points.join(" "));
  chart.closest("figure").querySelector("[data-most]").textContent = `most ${Number(most.toPrecision(4))}`;
}

async function charts(root) {
  const found = [...root.querySelectorAll("[data-chart]")];
  if (!found.length) return () => {};
  const answer = await fetch(`${root.dataset.stream}&history=${HOUR}&limit=1`);
  if (!answer.ok) return () => {};
  const { fields, samples } = (await answer.json()).history;
  const lines = found.map((chart) => [chart, samples.map((sample) => sample[fields.indexOf(chart.dataset.chart)])]);
  return (sample) => {
    for (const [chart, values] of lines) {
      values.push(sample[chart.dataset.chart]);
      if (values.length > HOUR) values.shift();
      if (!document.hidden) draw(chart, values);
    }
  };
}

// Numbers go into the cells that wait for them; nothing else of the page moves.
function showFigures(root) {
  let before = null;
  let addToCharts = () => {};
  const put = (element, value, isBytes) => {
    if (value !== null && value !== undefined) element.textContent = isBytes ? sized(value) : short(value);
  };
  follow(root, root.dataset.stream, {
    message: (now) => {
      if (before && now.time > before.time) {
        for (const cell of root.querySelectorAll("[data-rate]")) {
          const name = cell.dataset.rate;
          const rate = (now.counters[name] - before.counters[name]) / (now.time - before.time);
          put(cell, Math.max(rate, 0), name.startsWith("bytes"));
        }
      }
      for (const cell of root.querySelectorAll("[data-count]")) put(cell, now.counters[cell.dataset.count], false);
      for (const cell of root.querySelectorAll("[data-server]")) {
        put(cell, now.server?.[cell.dataset.server], cell.dataset.server.endsWith("bytes"));
      }
      for (const cell of root.querySelectorAll("[data-sample]")) {
        const name = cell.dataset.sample;
        const value = now.sample?.[name];
        if (name.startsWith("p") && !value) cell.textContent = "-";
        else if (value !== undefined) cell.textContent = name.startsWith("p") ? `${(value * 1000).toFixed(1)} ms` : short(value);
      }
      if (now.sample && now.sample.time !== before?.sample?.time) addToCharts(now.sample);
      before = now;
    },
  }, (connected) => {
    if (connected) charts(root).then((add) => { addToCharts = add; });
  });
}

const KEPT_MESSAGES = 200;
const LINE_CHARACTERS = 4000;
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]/g;

// As the server shows the body of a message in a list.
function shown(body) {
  const text = body.slice(0, LINE_CHARACTERS);
  const visible = text.replace(CONTROL, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return text.length < body.length ? `${visible}…` : visible;
}

function tail(root) {
  const list = root.querySelector("ol");
  const state = root.querySelector("[data-state]");
  const pause = root.querySelector("[data-pause]");
  const waiting = [];
  let paused = false;
  let connected = false;
  const show = (message) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `m/${message.partition}:${message.message_id}`;
    link.textContent = message.message_id.slice(0, 8);
    const time = document.createElement("time");
    time.dateTime = new Date(Number(message.timestamp) * 1000).toISOString();
    time.title = time.dateTime;
    time.textContent = ago(Date.parse(time.dateTime));
    const text = document.createElement("pre");
    text.textContent = shown(message.encoding === "base64" ? `base64 ${message.body}` : message.body);
    item.append(link, " ", time, text);
    list.prepend(item);
    while (list.children.length > KEPT_MESSAGES) list.lastElementChild.remove();
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) while (waiting.length) show(waiting.shift());
    say();
  });
  const say = () => {
    state.textContent = paused ? `Paused; waiting: ${waiting.length}.` : connected ? "Live: new messages appear here." : "";
  };
  const since = root.dataset.tail + `?partitions=all&since=${(SERVED / 1000).toFixed(3)}`;
  follow(root, since, {
    message: (message) => {
      if (paused) {
        waiting.push(message);
        if (waiting.length > KEPT_MESSAGES) waiting.shift();
        say();
      } else show(message);
    },
  }, (now) => { connected = now; say(); });
}

for (const root of document.querySelectorAll("[data-stream]")) showFigures(root);
for (const root of document.querySelectorAll("[data-tail]")) tail(root);
