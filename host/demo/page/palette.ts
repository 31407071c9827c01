/** The colours of bytes: cold to hot, on a light and on a dark ground. */

type Colour = readonly [number, number, number];

const LIGHT: readonly Colour[] = [
  [241, 237, 247],
  [213, 190, 236],
  [160, 98, 214],
  [108, 35, 163],
  [190, 36, 105],
  [242, 120, 60],
];
const DARK: readonly Colour[] = [
  [15, 12, 21],
  [52, 27, 92],
  [112, 44, 166],
  [203, 62, 148],
  [255, 142, 92],
  [255, 236, 170],
];
const OPAQUE = 255;

/** 256 colours as little-endian RGBA, which is how ImageData has them. */
export function palette(isDark: boolean): Uint32Array {
  const stops = isDark ? DARK : LIGHT;
  const colours = new Uint32Array(256);
  const bytes = new Uint8ClampedArray(colours.buffer);
  for (let heat = 0; heat < 256; heat++) {
    const place = (heat / 255) * (stops.length - 1);
    const below = Math.min(Math.floor(place), stops.length - 2);
    for (let channel = 0; channel < 3; channel++) {
      const from = stops[below]![channel]!;
      const to = stops[below + 1]![channel]!;
      bytes[heat * 4 + channel] = from + (to - from) * (place - below);
    }
    bytes[heat * 4 + 3] = OPAQUE;
  }
  return colours;
}
