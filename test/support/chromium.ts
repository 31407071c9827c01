/** The Chromium of tests. */

export const CHROMIUM = process.env['CHROMIUM'] ?? '/usr/bin/chromium';

/** Connections over loopback alone, and nothing that the browser does of itself. */
export const CHROMIUM_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-extensions',
  '--allow-loopback-in-peer-connection',
];
