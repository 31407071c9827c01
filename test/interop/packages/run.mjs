/**
 * One side of a package's program: `node run.mjs NAME serve|ask ADDRESS`. A program exports `serve`,
 * which resolves when it is ready, and `ask`; both say lines, and never how long something took. The
 * second round of questions comes when a path by RDP may be there.
 */
import { createSocket } from 'node:dgram';
import { setTimeout as sleep } from 'node:timers/promises';

const ROUND_MILLIS = 1500;
/** Of a socket of each side that lives as long as its process: some programs make short ones. */
const KEPT_PORT = 5300;

const [name, role, address] = process.argv.slice(2);
const { serve, ask } = await import(`./programs/${name}.mjs`);
const say = (...words) => console.log(words.join(' '));
const kept = createSocket('udp4');
process.on('SIGTERM', () => process.exit());
if (role === 'serve') {
  await new Promise((resolve) => kept.bind(KEPT_PORT, address, resolve));
  await serve(address, say);
  console.log('ready');
} else {
  kept.send('', KEPT_PORT, address);
  for (const pause of [0, ROUND_MILLIS]) {
    await sleep(pause);
    await ask(address, say);
  }
  // Packets in flight leave.
  await sleep(100);
  process.exit();
}
