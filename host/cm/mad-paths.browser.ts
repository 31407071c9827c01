/** Stands in for mad-paths.ts in a page, which explains no datagrams. */
export const PRIMARY_RATE = {};
export const PRIMARY_LEVEL = {};
export const ALTERNATE = {};
export const LOADED = {};
