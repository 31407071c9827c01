/** Checks of wire/syndrome.ts. */
import {
  NakCode,
  SyndromeKind,
  rnrTimerMicros,
  syndromeKind,
  syndromeValue,
} from '../wire/syndrome';
import { begin, end, same } from './tap';

/** IBA table 45, typed from there, in hundredths of a millisecond. */
const RNR_TIMERS: StaticArray<u32> = [
  65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
  2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

export function checkSyndrome(): void {
  begin('each RNR timer code waits as long as table 45 says');
  for (let code = 0; code < 32; code++) {
    same(rnrTimerMicros(code), RNR_TIMERS[code] * 10, 'rnrTimerMicros', code);
  }
  end();

  begin('a syndrome is a kind and a value');
  for (let value: u32 = 0; value < 32; value++) {
    same(syndromeKind(SyndromeKind.ACK | value), 0x00, 'ACK', value);
    same(syndromeKind(SyndromeKind.RNR_NAK | value), 0x20, 'RNR_NAK', value);
    same(syndromeKind(SyndromeKind.NAK | value), 0x60, 'NAK', value);
    same(syndromeValue(SyndromeKind.NAK | value), value, 'syndromeValue', value);
  }
  same(syndromeValue(NakCode.REMOTE_ACCESS_ERROR), 2, 'syndromeValue');
  end();
}
