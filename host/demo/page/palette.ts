/** The colours of bytes: seven colours of 36 levels, on a light and on a dark ground. */
import { COLOURS, LEVELS, byteOf } from '../brush.js';

type Colour = readonly [number, number, number];

const GROUND = { light: [241, 237, 247], dark: [15, 12, 21] } as const;
/** Violet, blue, green, gold, orange, pink, grey: as `--c0` to `--c6` of the style sheet. */
const LIGHT: readonly Colour[] = [
  [123, 44, 191],
  [28, 110, 214],
  [26, 140, 90],
  [214, 158, 0],
  [236, 104, 40],
  [214, 40, 120],
  [90, 84, 104],
];
const DARK: readonly Colour[] = [
  [186, 124, 245],
  [96, 165, 250],
  [78, 206, 146],
  [250, 204, 72],
  [255, 146, 82],
  [255, 110, 170],
  [190, 184, 204],
];
/** The soft edge is so much of the colour, and the rest ground. */
const EDGE = 0.15;
const OPAQUE = 255;

/** 256 colours as little-endian RGBA, which is how ImageData has them. */
export function palette(isDark: boolean): Uint32Array {
  const ground = isDark ? GROUND.dark : GROUND.light;
  const colours = new Uint32Array(256);
  const bytes = new Uint8ClampedArray(colours.buffer);
  const set = (byte: number, paint: Colour, share: number): void => {
    for (let channel = 0; channel < 3; channel++) {
      const from = ground[channel]!;
      bytes[byte * 4 + channel] = from + (paint[channel]! - from) * share;
    }
    bytes[byte * 4 + 3] = OPAQUE;
  };
  const stops = isDark ? DARK : LIGHT;
  for (let byte = 0; byte < 256; byte++) set(byte, stops[COLOURS - 1]!, byte === 0 ? 0 : 1);
  for (let colour = 0; colour < COLOURS; colour++) {
    for (let level = 0; level < LEVELS; level++) {
      const brightness = level / (LEVELS - 1);
      set(byteOf(colour, brightness), stops[colour]!, EDGE + (1 - EDGE) * brightness);
    }
  }
  return colours;
}
