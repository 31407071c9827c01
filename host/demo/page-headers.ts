/** HTTP security headers of the page: allowed sources, and no framing by another page. */

/** Of every answer. Isolated pages may share memory with their Workers. */
export const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-cache',
  Vary: 'Accept-Encoding',
} as const;

/**
 * The policy of a page and its Workers. `host`: the Host header of the request, which was judged.
 * 'wasm-unsafe-eval' compiles WebAssembly and nothing else. Some browsers' 'self' has no WebSockets.
 */
export function contentSecurityPolicy(host: string | undefined): string {
  const sockets = host === undefined ? '' : ` ws://${host} wss://${host}`;
  return [
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval'",
    "worker-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    `connect-src 'self'${sockets}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}
