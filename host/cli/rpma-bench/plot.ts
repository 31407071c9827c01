/** The table of `verbena rpma bench` as a picture: by size, a line for each depth. */
import type { BenchJob } from './fio-job.js';

const [WIDTH, HEIGHT, MARGIN] = [420, 300, 50];
const COLOURS = ['#4269d0', '#efb118', '#ff725c', '#6cc5b0', '#3ca951', '#a463f2'];

/** How fast it went. */
export interface Rate {
  readonly writes: number;
  readonly bytesPerSecond: number;
  /** From the write to its being durable: median, and 99 of 100. */
  readonly p50Micros: number;
  readonly p99Micros: number;
}

export interface BenchLine {
  readonly job: BenchJob;
  readonly local: Rate;
  readonly remote: Rate;
}

interface Figure {
  readonly name: string;
  of(rate: Rate): number;
}

const FIGURES: readonly Figure[] = [
  { name: 'MB/s', of: ({ bytesPerSecond }) => bytesPerSecond / 1e6 },
  { name: 'microseconds (p50)', of: ({ p50Micros }) => p50Micros },
];

/**
 * Bandwidth above latency, writes one after the other beside writes anywhere. Solid: there; dashed:
 * here.
 */
export function drawBench(lines: readonly BenchLine[]): string {
  const panels = [false, true]
    .map((isRandom) => lines.filter(({ job }) => job.isRandom === isRandom))
    .filter((panel) => panel.length > 0);
  const drawn = FIGURES.flatMap((figure, down) =>
    panels.map((panel, across) => drawPanel(panel, figure, across, down)),
  );
  const width = panels.length * (WIDTH + MARGIN) + MARGIN;
  const height = FIGURES.length * (HEIGHT + MARGIN) + MARGIN;
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const style = 'font-family="sans-serif" font-size="11"';
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${style}>\n${drawn.join('\n')}\n</svg>\n`;
}

function drawPanel(
  panel: readonly BenchLine[],
  figure: Figure,
  across: number,
  down: number,
): string {
  const rates = panel.flatMap(({ local, remote }) => [figure.of(local), figure.of(remote)]);
  const sizes = panel.map(({ job }) => job.bytes);
  const x = scale(Math.min(...sizes), Math.max(...sizes), MARGIN, WIDTH);
  const y = scale(Math.min(...rates), Math.max(...rates), HEIGHT, MARGIN);
  const depths = [...new Set(panel.map(({ job }) => job.depth))];
  const parts = depths.map((depth, which) => {
    const own = panel.filter(({ job }) => job.depth === depth);
    const colour = COLOURS[which % COLOURS.length]!;
    const path = (of: 'local' | 'remote'): string =>
      own.map((line) => `${x(line.job.bytes)},${y(figure.of(line[of]))}`).join(' ');
    const line = (of: 'local' | 'remote', dash: string): string =>
      `<polyline fill="none" stroke="${colour}"${dash} points="${path(of)}"/>`;
    const label = `<text x="${WIDTH - 60}" y="${HEIGHT - 14 * which}" fill="${colour}">`;
    const dashes = ' stroke-dasharray="4 3"';
    return `${line('remote', '')}${line('local', dashes)}${label}depth ${depth}</text>`;
  });
  const ticks = [...new Set(sizes)].map(
    (bytes) =>
      `<text x="${x(bytes)}" y="${HEIGHT + 18}" text-anchor="middle">${short(bytes)}</text>`,
  );
  const title = panel[0]!.job.isRandom ? 'random' : 'sequential';
  const said = `${title}: ${figure.name} by bytes of a write; solid: remote, dashed: local`;
  const top = `<text x="${MARGIN}" y="30">${said}</text>`;
  const ends = [Math.min(...rates), Math.max(...rates)].map(
    (rate) => `<text x="4" y="${y(rate)}">${rate.toPrecision(3)}</text>`,
  );
  const all = [top, ...ticks, ...ends, ...parts].join('\n');
  const place = `${across * (WIDTH + MARGIN)} ${down * (HEIGHT + MARGIN)}`;
  return `<g transform="translate(${place})">\n${all}\n</g>`;
}

/** Both axes by powers. */
function scale(low: number, high: number, from: number, to: number): (value: number) => string {
  const span = Math.log(high / low) || 1;
  return (value) => (from + (Math.log(value / low) / span) * (to - from)).toFixed(1);
}

function short(bytes: number): string {
  if (bytes >= 2 ** 20) return `${bytes / 2 ** 20}M`;
  return bytes >= 1024 ? `${bytes / 1024}k` : `${bytes}`;
}
