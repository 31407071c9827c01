/** Suites whose tests each run in a world of their own: a wire, two devices, a file. */
import { suite } from 'uvu';
import { onWire, type Wire, type WireOptions } from './wire.js';

type Body<World> = (world: World) => void | Promise<void>;
type Named<World> = (title: string, body: Body<World>) => void;

export interface WorldTest<World, Options extends unknown[]> extends Named<World> {
  /** Tests in worlds that these options change. */
  with(...options: Options): Named<World>;
  run(): void;
}

/**
 * `use` opens a world, awaits the body and closes the world. A body without a parameter takes no
 * world: it runs alone.
 */
export function testsIn<World, Options extends unknown[]>(
  use: (body: (world: World) => Promise<void>, ...options: Options) => Promise<void>,
  ...defaults: NoInfer<Options>
): WorldTest<World, Options> {
  const plain = suite();
  const named =
    (...options: Options): Named<World> =>
    (title, body) => {
      const alone = body as () => void | Promise<void>;
      const inside = async (): Promise<void> => {
        let ran: Promise<void> | undefined;
        const run = (world: World): Promise<void> => {
          ran = (async () => body(world))();
          // Reported below, also if `use` does not await it.
          ran.catch(() => undefined);
          return ran;
        };
        await use(run, ...options);
        await ran;
      };
      plain(title, body.length === 0 ? async () => alone() : inside);
    };
  return Object.assign(named(...defaults), { with: named, run: () => plain.run() });
}

/** Tests over a wire that is opened with these options. */
export function testsOnWire(options: WireOptions = {}): WorldTest<Wire, [options: WireOptions]> {
  return testsIn((body, options: WireOptions) => onWire(options, body), options);
}
