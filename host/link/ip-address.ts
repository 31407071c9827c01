/** Is this text an IP address? `isIP` of node:net, for browsers as well. */

const DECIMAL = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const IPV4 = new RegExp(`^${DECIMAL}(?:\\.${DECIMAL}){3}$`);

export function isIPv4(text: string): boolean {
  return IPV4.test(text);
}

/** A zone (`fe80::1%eth0`) may be there. */
export function isIPv6(text: string): boolean {
  const found = /^([0-9a-f:.]+)(?:%[0-9a-z.:-]+)?$/i.exec(text);
  if (!found) return false;
  const address = found[1]!;
  const dotted = /^(.*:)([^:]+\.[^:]*)$/.exec(address);
  if (dotted && !isIPv4(dotted[2]!)) return false;
  // The dotted tail stands for two groups.
  const plain = dotted ? `${dotted[1]}0:0` : address;
  const halves = plain.split('::');
  const groups = halves.flatMap((half) => (half === '' ? [] : half.split(':')));
  const isWhole = halves.length === 1 ? groups.length === 8 : groups.length <= 7;
  return halves.length <= 2 && isWhole && groups.every((group) => /^[0-9a-f]{1,4}$/i.test(group));
}

/** 4, 6, or 0 for neither. */
export function isIP(text: string): number {
  if (isIPv4(text)) return 4;
  return isIPv6(text) ? 6 : 0;
}
