/** How numbers look in sentences and in JSON. */

/** `0x` and at least `digits` hexadecimal digits. */
export function hex(value: u64, digits: i32): string {
  return '0x' + value.toString(16).padStart(digits, '0');
}

/** Memory key, Q_Key, immediate, ICRC: 32 bits. */
export function hexWord(value: u32): string {
  return hex(value, 8);
}

/** Queue pair number: 24 bits. */
export function hexQp(value: u32): string {
  return hex(value, 6);
}

/** `1 byte`, `2 bytes`. */
export function counted(count: u64, noun: string): string {
  return count.toString() + ' ' + noun + (count == 1 ? '' : 's');
}

/** `640 us`, `1.28 ms`, `655.36 ms`: exact, without zeros at the end. */
export function duration(micros: u32): string {
  if (micros < 1000) return micros.toString() + ' us';
  const whole = (micros / 1000).toString();
  const rest = micros % 1000;
  if (rest == 0) return whole + ' ms';
  let digits = rest.toString().padStart(3, '0');
  while (digits.endsWith('0')) digits = digits.substring(0, digits.length - 1);
  return whole + '.' + digits + ' ms';
}

/** A string as JSON writes it. */
export function quoteJson(text: string): string {
  let out = '"';
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    // A lone surrogate has no UTF-8: escaped, JSON carries it through.
    const escape = code < 0x20 || code == 0x7f || (code >= 0xd800 && code <= 0xdfff);
    if (code == 0x22 || code == 0x5c) out += '\\' + text.charAt(i);
    else if (escape) out += '\\u' + code.toString(16).padStart(4, '0');
    else out += text.charAt(i);
  }
  return out + '"';
}

/** One member of a JSON object; `value` is JSON already. */
export function member(name: string, value: string): string {
  return quoteJson(name) + ':' + value;
}

export function memberNumber(name: string, value: u32): string {
  return member(name, value.toString());
}

export function memberText(name: string, value: string): string {
  return member(name, quoteJson(value));
}

export function memberBool(name: string, value: u32): string {
  return member(name, value ? 'true' : 'false');
}

/** A JSON object from its members. */
export function object(members: string[]): string {
  return '{' + members.join(',') + '}';
}
