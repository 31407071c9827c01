/** Checks of wire/psn.ts. */
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { begin, end, same } from './tap';

const HALF: u32 = 0x800000;

export function checkPsn(): void {
  begin('a PSN wraps after 2^24 - 1');
  same(psnAdd(0xffffff, 1), 0, 'psnAdd');
  same(psnAdd(0xfffff0, 0x20), 0x10, 'psnAdd');
  same(psnAdd(5, 0xffffff), 4, 'psnAdd');
  same(psnDistance(0xffffff, 0), 1, 'psnDistance');
  same(psnDistance(0, 0xffffff), 0xffffff, 'psnDistance');
  same(psnDistance(7, 7), 0, 'psnDistance');
  end();

  begin('a PSN comes before the 2^23 - 1 that follow it, across the wrap too');
  for (let round: u32 = 0; round < 64; round++) {
    // Starts spread over the whole circle, the wrap among them.
    const from = (round * 0x041041) & 0xffffff;
    for (let bit: u32 = 0; bit < 23; bit++) {
      const ahead = psnAdd(from, 1 << bit);
      same(u64(psnCompare(from, ahead) < 0), 1, 'before', from);
      same(u64(psnCompare(ahead, from) > 0), 1, 'after', from);
      same(psnDistance(from, ahead), 1 << bit, 'psnDistance', from);
    }
    same(u64(psnCompare(from, psnAdd(from, HALF - 1)) < 0), 1, 'before', from);
    same(u64(psnCompare(from, psnAdd(from, HALF + 1)) > 0), 1, 'after', from);
    same(u64(psnCompare(from, from) == 0), 1, 'equal', from);
  }
  end();
}
