/**
 * One of several processes that share a device (member.ts): runs the functions that it is sent, one
 * after the other, with what it has kept so far.
 */
import * as verbena from '../../host/index.js';
import * as pair from './pair.js';
import { root } from './paths.js';
import type { MemberRequest, MemberWorld } from './member.js';

/** Literal imports: a bundle of this program has the same copy of them (bundle-tests.ts). */
const LOADERS: { readonly [module: string]: () => Promise<unknown> } = {
  'build/host/demo/relay.js': () => import('../../host/demo/relay.js'),
  'build/host/demo/server.js': () => import('../../host/demo/server.js'),
  'build/host/dgram/index.js': () => import('../../host/dgram/index.js'),
  'build/host/link/udp/udp.js': () => import('../../host/link/udp/udp.js'),
  'build/host/rds/info-server.js': () => import('../../host/rds/info-server.js'),
};
/** Programs outside of `npm test` are not bundled: they may name any module. */
const load = (module: string): Promise<unknown> =>
  LOADERS[module]?.() ?? import(new URL(module, root).href);
const world = { verbena, pair, load, kept: {} } as unknown as MemberWorld;

function answer(message: object): void {
  process.send!(message);
}

let before: Promise<unknown> = Promise.resolve();
process.on('message', ({ id, source, values }: MemberRequest) => {
  before = before.then(async () => {
    try {
      // eslint-disable-next-line @typescript-eslint/no-implied-eval
      const work = new Function(`return (${source})`)() as (...all: unknown[]) => unknown;
      answer({ id, result: await work(world, ...values) });
    } catch (error) {
      const { name, code, message } = error as Error & { code?: string };
      answer({ id, error: { name, code, message } });
    }
  });
});
process.on('disconnect', () => process.exit(0));
answer({ ready: true });
