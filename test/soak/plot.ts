/** Memory over time as a page of its own: a line for each life of each member. */
import type { Sample } from './coordinator.js';
import type { MemoryUse } from './messages.js';

const [WIDTH, HEIGHT, MARGIN] = [860, 260, 60];
const COLOURS = ['#4269d0', '#efb118', '#ff725c', '#3ca951'];
const KINDS = [
  ['rss', 'resident memory'],
  ['heap', "JavaScript's heap"],
  ['engine', "the engine's memory, taken, without those receives"],
  ['receives', 'receives of reliable datagrams'],
] as const;

export function plotPage(samples: readonly Sample[], title: string): string {
  const style = 'body{font:14px sans-serif;margin:2em}text{font-size:11px}';
  const head = `<!doctype html><meta charset="utf-8"><title>${title}</title><style>${style}</style>`;
  const legend = COLOURS.map((colour, member) => `<b style="color:${colour}">${member}</b>`);
  const parts = KINDS.map(
    ([of, name]) => `<h2>${name}, MiB over seconds</h2>${panel(samples, of)}`,
  );
  return `${head}<h1>${title}</h1><p>Members: ${legend.join(' ')}</p>${parts.join('\n')}\n`;
}

function panel(samples: readonly Sample[], of: keyof MemoryUse): string {
  const mebibytes = (bytes: number): number => bytes / 2 ** 20;
  const [endX, endY] = [
    Math.max(1, ...samples.map(({ seconds }) => seconds)),
    Math.max(1, ...samples.map((sample) => mebibytes(sample[of]))),
  ];
  const x = (seconds: number): string => (MARGIN + (seconds / endX) * WIDTH).toFixed(1);
  const y = (value: number): string => (HEIGHT - (value / endY) * (HEIGHT - 20)).toFixed(1);
  const lives = new Map<string, Sample[]>();
  for (const sample of samples) {
    const key = `${sample.member}.${sample.incarnation}`;
    lives.set(key, [...(lives.get(key) ?? []), sample]);
  }
  const lines = [...lives.values()].map((life) => {
    const points = life.map((sample) => `${x(sample.seconds)},${y(mebibytes(sample[of]))}`);
    const colour = COLOURS[life[0]!.member % COLOURS.length]!;
    return `<polyline fill="none" stroke="${colour}" points="${points.join(' ')}"/>`;
  });
  const marks = [0, 0.5, 1].map((part) => {
    const value = part * endY;
    return `<text x="4" y="${y(value)}">${value.toFixed(0)}</text>`;
  });
  const times = [0, 0.5, 1].map((part) => {
    const seconds = part * endX;
    return `<text x="${x(seconds)}" y="${HEIGHT + 16}">${seconds.toFixed(0)}</text>`;
  });
  const size = `width="${WIDTH + 2 * MARGIN}" height="${HEIGHT + 30}"`;
  return `<svg ${size}>${lines.join('')}${marks.join('')}${times.join('')}</svg>`;
}
