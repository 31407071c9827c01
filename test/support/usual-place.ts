/**
 * Test files whose programs open a device at UDP port 4791 of 127.0.0.1 or of every address, as
 * their users do. The port serves one device: the runner starts one of these files at a time, and
 * each in a process of its own.
 */
const AT_THE_USUAL_PLACE = [
  /^cli\/(decode|offload|readme|rpma-examples|tour|voice)/,
  /^unit\/(dgram\/|remote\/(deaths|remote))/,
  /^shared\/cluster/,
];

export const isAtUsualPlace = (file: string): boolean =>
  AT_THE_USUAL_PLACE.some((pattern) => pattern.test(file));
