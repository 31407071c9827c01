/** Results of `npm run net` as a page: bars, figures, and lines over time of the last round. */
import type { Outcome } from './outcome.js';
import { SLICE_MILLIS, type Series } from './series.js';

const [WIDTH, HEIGHT, MARGIN] = [860, 180, 60];
const COLOURS = ['#4269d0', '#efb118', '#ff725c', '#3ca951'];

export function netPage(outcomes: readonly Outcome[]): string {
  const style =
    'body{font:14px sans-serif;margin:2em auto;max-width:64em}text{font-size:11px}' +
    'td{padding:0 1em 0 0}.fail{color:#c02626}';
  const head = `<!doctype html><meta charset="utf-8"><title>Verbena: networks</title>`;
  return `${head}<style>${style}</style><h1>Networks</h1>${outcomes.map(section).join('\n')}\n`;
}

function section({ scenario, figures, judged, rounds, errors }: Outcome): string {
  const { name, link } = scenario;
  const bars = judged.map(({ figure, value, ok, atLeast, atMost }) => {
    const limits = [atLeast, atMost].map((limit) => limit ?? '').join(' … ');
    return row([ok ? 'ok' : 'FAIL', figure, value.toPrecision(4), limits], ok);
  });
  const all = Object.entries(figures).map(([figure, value]) => row([figure, value.toPrecision(4)]));
  const series = rounds.at(-1)?.series ?? {};
  const problems = [...new Set(errors)].map((error) => `<p class="fail">${error}</p>`).join('');
  return `<h2>${name}</h2><p>${JSON.stringify(link)}</p><table>${bars.join('')}</table>${problems}
${panel('goodput, Mbit/s over seconds', series, ' Mbit/s')}
${panel('congestion window, packets over seconds', series, ' window')}
${panel('round trip, ms over seconds', series, ' round trip')}
${panel('queue of the switch, packets over seconds', series, ' queue')}
<details><summary>all figures</summary><table>${all.join('')}</table></details>`;
}

function row(cells: readonly string[], ok = true): string {
  return `<tr${ok ? '' : ' class="fail"'}>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`;
}

function panel(title: string, series: Series, suffix: string): string {
  const lines = Object.entries(series).filter(([name]) => name.endsWith(suffix));
  if (lines.length === 0) return '';
  const endX = Math.max(1, ...lines.map(([, values]) => values.length));
  const endY = Math.max(1, ...lines.flatMap(([, values]) => values));
  const x = (index: number): string => (MARGIN + (index / endX) * WIDTH).toFixed(1);
  const y = (value: number): string => (HEIGHT - (value / endY) * (HEIGHT - 20)).toFixed(1);
  const drawn = lines.map(([, values], index) => {
    const points = values.map((value, at) => `${x(at)},${y(value)}`).join(' ');
    return `<polyline fill="none" stroke="${COLOURS[index]}" points="${points}"/>`;
  });
  const legend = lines.map(
    ([name], index) => `<b style="color:${COLOURS[index]}">${name.slice(0, -suffix.length)}</b>`,
  );
  const marks = [0, 0.5, 1].map((part) => {
    const seconds = (part * endX * SLICE_MILLIS) / 1000;
    return (
      `<text x="4" y="${y(part * endY)}">${(part * endY).toFixed(0)}</text>` +
      `<text x="${x(part * endX)}" y="${HEIGHT + 16}">${seconds.toFixed(1)}</text>`
    );
  });
  const size = `width="${WIDTH + 2 * MARGIN}" height="${HEIGHT + 30}"`;
  return `<p>${title}: ${legend.join(', ')}</p><svg ${size}>${drawn.join('')}${marks.join('')}</svg>`;
}
