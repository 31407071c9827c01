/** The demo as a visitor has it: what its page weighs, when it writes, how often it draws. */
import { DemoPage, closeWorld, freshUrl, openWorld, type DemoWorld } from '../browser/demo-page.js';
import { interleave, median, type Figures, type Pace } from './harness.js';

/** Presses of the button that fetches a column. */
const COLUMNS = 5;

export interface PageRun {
  readonly rounds: Figures[];
  /** On the page's console. */
  readonly errors: readonly string[];
}

/** Every round has a browser of its own: nothing is there from the one before. */
export async function measurePage(pace: Pace): Promise<PageRun> {
  const errors: string[] = [];
  const visit = async (): Promise<Figures> => {
    const world = {} as DemoWorld;
    await openWorld(world);
    try {
      const page = await DemoPage.open(world.browser, freshUrl(world));
      const page_first_write_ms = await page.firstWrite();
      const page_frames_per_second = await page.framesWhilePainting();
      const { drawMillis } = await page.inspect();
      const presses: number[] = [];
      while (presses.length < COLUMNS) presses.push((await page.play('column'))['bareTrips']!);
      errors.push(...page.errors);
      return {
        page_gzip_kib: world.server.gzipBytes / 1024,
        page_first_write_ms,
        page_frames_per_second,
        page_draw_ms: drawMillis,
        page_column_bare_trips: median(presses),
      };
    } finally {
      await closeWorld(world);
    }
  };
  return { rounds: await interleave('browser, the demo’s page', [visit], pace), errors };
}
