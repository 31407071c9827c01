/** A file arrives although its sender gets another address meanwhile. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { addressOf, missingForNetwork } from './network.js';
import { putFile } from './put-file.js';

const test = suite('net/address');
const BYTES = 4_000_000;
const MOVES = [
  ['goes on from another address of this machine, and says so', false],
  ['stays at the address of --bind, and gives up', true],
] as const;

if (missingForNetwork() === undefined) {
  for (const [what, bound] of MOVES.slice(0, sample(1, MOVES.length))) {
    test(`put ${what}`, async () => {
      let address = '';
      await putFile(
        BYTES,
        bound ? ['--bind', addressOf(1), '--outage', '5'] : [],
        (network) => void (address = network.changeAddress(1)),
        ({ ended: { code, stderr }, isWhole }) => {
          assert.is(code, bound ? 1 : 0, stderr);
          assert.is(stderr.includes(`going on from ${address}`), !bound, stderr);
          assert.not.match(stderr, /\(node:|trace-warnings/, 'what Node says of warnings');
          if (!bound) assert.ok(isWhole());
        },
      );
    });
  }
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
