/**
 * In the page: draws what `DATA` holds (page.ts). Rows of figures lie on their side, medians as
 * bars and single rounds as dots; distributions are curves.
 */
/* global DATA, uPlot, document, getComputedStyle, matchMedia */

const ROW_PIXELS = 26;
const FRAME_PIXELS = 60;
const LABEL_PIXELS = 330;
const WIDTH_PIXELS = 980;
const CURVES_PIXELS = 320;
const HUES = [215, 25, 140, 285, 60, 180, 330, 100, 0, 250];

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => matchMedia('(prefers-color-scheme: dark)').matches;
const drawn = [];

function axis(more) {
  return {
    stroke: () => color('--ink'),
    grid: { stroke: () => color('--line'), width: 1 },
    ticks: { show: false },
    ...more,
  };
}

/** Figures of one unit: a row each. */
function drawRows(place, { unit, rows }) {
  const count = Math.max(0, ...rows.map(({ rounds }) => rounds.length));
  const most = Math.max(...rows.flatMap(({ median, rounds }) => [median, ...rounds]));
  const fill = () => rows.map(({ isYardstick }) => color(isYardstick ? '--yardstick' : '--ours'));
  const bars = uPlot.paths.bars({
    size: [0.7, ROW_PIXELS],
    disp: { fill: { unit: 3, values: fill }, stroke: { unit: 3, values: fill } },
  });
  const dot = {
    show: true,
    size: 4,
    width: 1,
    stroke: () => color('--ink'),
    fill: () => color('--paper'),
  };
  const round = () => ({ label: 'a round', paths: () => null, points: dot });
  const options = {
    title: unit,
    width: WIDTH_PIXELS,
    height: rows.length * ROW_PIXELS + FRAME_PIXELS,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false, ori: 1, dir: -1, range: [-0.6, rows.length - 0.4] },
      y: { ori: 0, range: [0, most * 1.15] },
    },
    axes: [
      axis({
        side: 3,
        size: LABEL_PIXELS,
        splits: () => rows.map((_, index) => index),
        values: () => rows.map(({ name, median }) => `${name}  ${median}`),
        grid: { show: false },
      }),
      axis({ side: 2, space: 80 }),
    ],
    series: [
      {},
      { label: 'median', paths: bars, points: { show: false } },
      ...Array.from({ length: count }, round),
    ],
  };
  const data = [
    rows.map((_, index) => index),
    rows.map(({ median }) => median),
    ...Array.from({ length: count }, (_, index) => rows.map(({ rounds }) => rounds[index] ?? null)),
  ];
  drawn.push(new uPlot(options, data, place));
}

/** Draws the cumulative share of samples; the part from 0.9 up is spread out. */
function drawCurves(place, distributions) {
  const names = Object.keys(distributions);
  const parts = distributions[names[0]].map(([part]) => part);
  const nines = parts.map((part) => -Math.log10(1 - part));
  const options = {
    title: 'distribution, microseconds (logarithmic)',
    width: WIDTH_PIXELS,
    height: CURVES_PIXELS,
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, y: { distr: 3 } },
    axes: [
      axis({
        splits: () => [0, 0.30103, 1, 2, 3, 4],
        values: () => ['least', 'p50', 'p90', 'p99', 'p99.9', 'p99.99'],
      }),
      axis({ size: 70 }),
    ],
    series: [
      { label: 'part', value: (_, nine) => (nine == null ? '' : (1 - 10 ** -nine).toFixed(4)) },
      ...names.map((name, index) => ({
        label: name.replace(/_us$/, ''),
        stroke: () => `hsl(${HUES[index % HUES.length]} 65% ${isDark() ? 68 : 42}%)`,
        width: 2,
        points: { show: false },
        value: (_, micros) => (micros == null ? '' : micros.toPrecision(4)),
      })),
    ],
  };
  const data = [nines, ...names.map((name) => distributions[name].map(([, value]) => value))];
  drawn.push(new uPlot(options, data, place));
}

/** Draws a figure as a function of a parameter; lines share their places in x. */
function drawLines(place, { title, lines }) {
  const names = Object.keys(lines);
  const options = {
    title,
    width: WIDTH_PIXELS,
    height: CURVES_PIXELS,
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
    axes: [axis({}), axis({ size: 90 })],
    series: [
      {},
      ...names.map((name, index) => ({
        label: name,
        stroke: () => `hsl(${HUES[index % HUES.length]} 65% ${isDark() ? 68 : 42}%)`,
        width: 2,
        points: { show: true, size: 5 },
      })),
    ],
  };
  // A logarithm of 0 is nowhere: such a point is left out.
  const data = [
    lines[names[0]].map(([x]) => x),
    ...names.map((name) => lines[name].map(([, y]) => (y > 0 ? y : null))),
  ];
  drawn.push(new uPlot(options, data, place));
}

for (const { name, plots, distributions, curves } of DATA) {
  const place = document.querySelector(`[data-bench="${name}"]`);
  for (const plot of plots) drawRows(place, plot);
  if (Object.keys(distributions).length > 0) drawCurves(place, distributions);
  for (const curve of curves) drawLines(place, curve);
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const plot of drawn) plot.redraw();
});
