/**
 * Function names of a module without the folder that all begin with: profiles need them, and
 * each process loads them.
 */
import { readFileSync, writeFileSync } from 'node:fs';

const PREFIX = 'assembly/';
const HEADER_BYTES = 8;
const CUSTOM_SECTION = 0;
const FUNCTION_NAMES = 1;

/** LEB128 numbers and names, one after the other. */
class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  number() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  take(length = this.number()) {
    return this.bytes.subarray(this.at, (this.at += length));
  }
}

function numberBytes(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value & 127) | 128);
  return Buffer.from([...bytes, value]);
}

const sized = (bytes) => Buffer.concat([numberBytes(bytes.length), bytes]);

function shortNames(section) {
  const reader = new Reader(section);
  const parts = [];
  for (let left = reader.number(); left > 0; left--) {
    parts.push(numberBytes(reader.number()), sized(shortName(reader.take())));
  }
  return Buffer.concat([numberBytes(parts.length / 2), ...parts]);
}

const shortName = (name) => Buffer.from(name.toString().replace(PREFIX, ''));

/** Of a `name` section: subsections by number. */
function shortSection(section) {
  const reader = new Reader(section);
  const parts = [sized(reader.take())];
  while (reader.at < section.length) {
    const id = reader.take(1);
    const body = reader.take();
    parts.push(id, sized(id[0] === FUNCTION_NAMES ? shortNames(body) : body));
  }
  return Buffer.concat(parts);
}

export function shortenNames(file) {
  const bytes = readFileSync(file);
  const reader = new Reader(bytes, HEADER_BYTES);
  const parts = [bytes.subarray(0, HEADER_BYTES)];
  while (reader.at < bytes.length) {
    const id = reader.take(1);
    const body = reader.take();
    const isNames = id[0] === CUSTOM_SECTION && new Reader(body).take().toString() === 'name';
    parts.push(id, sized(isNames ? shortSection(body) : body));
  }
  writeFileSync(file, Buffer.concat(parts));
}
