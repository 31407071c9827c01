/**
 * The options of a device as text, to JSON:
 * ```
 *   address=10.0.0.1, port=4791; # commas, semicolons and line ends part options
 *   arenaBytes=64M
 *   timeoutMicros=16ms   file="/tmp/a, b"
 * ```
 * Sizes become bytes (k, M, G are powers of 1024), durations become microseconds (us, ms, s).
 * The answer is `{"values":{...}}`, or `{"error":{"line":1,"column":9,"message":"..."}}`.
 */
import { member, memberNumber, memberText, object, quoteJson } from './text';

/** Beyond this a JavaScript number is no longer exact. */
const NUMBER_MAX: f64 = 9007199254740991;

export function parseConfigText(text: string): string {
  return new ConfigParser(text).run();
}

function isDigit(code: i32): bool {
  return code >= 0x30 && code <= 0x39;
}

function isLetter(code: i32): bool {
  return (code >= 0x41 && code <= 0x5a) || (code >= 0x61 && code <= 0x7a);
}

function isNameCode(code: i32): bool {
  return isLetter(code) || isDigit(code) || code == 0x5f || code == 0x2e || code == 0x2d;
}

function isBlank(code: i32): bool {
  return code == 0x20 || code == 0x09 || code == 0x0d;
}

/** Comma, semicolon, line end, blank, comment or the end of the text: a bare value stops there. */
function endsValue(code: i32): bool {
  return code < 0 || isBlank(code) || code == 0x0a || code == 0x2c || code == 0x3b || code == 0x23;
}

/** Factor of a suffix; 0 for an unknown one. */
function factorOf(suffix: string): f64 {
  if (suffix == '' || suffix == 'us') return 1;
  if (suffix == 'k' || suffix == 'K') return 1024;
  if (suffix == 'M') return 1024 * 1024;
  if (suffix == 'G') return 1024 * 1024 * 1024;
  if (suffix == 'ms') return 1000;
  if (suffix == 's') return 1000000;
  return 0;
}

class ConfigParser {
  at: i32 = 0;
  /** Where the error is, and what; no error as long as `message` is empty. */
  errorAt: i32 = 0;
  message: string = '';
  names: Set<string> = new Set<string>();
  members: string[] = new Array<string>();

  constructor(public text: string) {}

  run(): string {
    this.skipToOption();
    while (this.message == '' && this.code() >= 0) {
      this.option();
      this.skipToOption();
    }
    if (this.message == '') return object([member('values', object(this.members))]);
    return object([member('error', this.errorObject())]);
  }

  /** The code at the cursor, -1 at the end. */
  private code(): i32 {
    return this.at < this.text.length ? this.text.charCodeAt(this.at) : -1;
  }

  private fail(at: i32, message: string): void {
    if (this.message != '') return;
    this.errorAt = at;
    this.message = message;
  }

  private errorObject(): string {
    let line = 1;
    let lineStart = 0;
    for (let i = 0; i < this.errorAt; i++) {
      if (this.text.charCodeAt(i) != 0x0a) continue;
      line++;
      lineStart = i + 1;
    }
    return object([
      memberNumber('line', line),
      memberNumber('column', this.errorAt - lineStart + 1),
      memberText('message', this.message),
    ]);
  }

  private skipBlanks(): void {
    while (isBlank(this.code())) this.at++;
  }

  private skipToOption(): void {
    for (;;) {
      const code = this.code();
      if (code == 0x23) this.skipComment();
      else if (isBlank(code) || code == 0x0a || code == 0x2c || code == 0x3b) this.at++;
      else return;
    }
  }

  private skipComment(): void {
    while (this.code() >= 0 && this.code() != 0x0a) this.at++;
  }

  /** `name = value` */
  private option(): void {
    const start = this.at;
    while (isNameCode(this.code())) this.at++;
    const name = this.text.substring(start, this.at);
    if (name == '' || !isLetter(name.charCodeAt(0))) {
      this.fail(start, 'an option begins with its name, a letter first, as in name=value');
      return;
    }
    if (this.names.has(name)) {
      this.fail(start, 'duplicate name ' + name);
      return;
    }
    this.names.add(name);
    this.skipBlanks();
    if (this.code() != 0x3d) {
      this.fail(this.at, 'expected "=" after ' + name);
      return;
    }
    this.at++;
    this.skipBlanks();
    const value = this.code() == 0x22 ? this.quoted() : this.bare(name);
    this.members.push(member(name, value));
  }

  /** Everything up to the next quote; \" and \\ stand for themselves. */
  private quoted(): string {
    const start = this.at++;
    let out = '';
    while (this.code() != 0x22) {
      if (this.code() == 0x5c) this.at++;
      if (this.code() < 0 || this.code() == 0x0a) {
        this.fail(start, 'this quotation mark is never closed');
        return '';
      }
      out += this.text.charAt(this.at++);
    }
    this.at++;
    if (!endsValue(this.code()))
      this.fail(this.at, 'expected "," after the closing quotation mark');
    return quoteJson(out);
  }

  private bare(name: string): string {
    const start = this.at;
    while (!endsValue(this.code())) this.at++;
    const word = this.text.substring(start, this.at);
    if (word == '') this.fail(start, 'expected a value after ' + name + '=');
    if (word == 'true' || word == 'yes' || word == 'on') return 'true';
    if (word == 'false' || word == 'no' || word == 'off') return 'false';
    const sign = word.startsWith('-') ? 1 : 0;
    if (word.length == sign || !isDigit(word.charCodeAt(sign))) return quoteJson(word);
    if (word.startsWith('0x') || word.startsWith('0X')) return this.hexadecimal(start, word);
    return this.numeric(start, word, sign);
  }

  private hexadecimal(start: i32, word: string): string {
    let value: f64 = 0;
    for (let i = 2; i < word.length; i++) {
      const code = word.charCodeAt(i);
      const letter = code | 0x20;
      if (isDigit(code)) value = value * 16 + <f64>(code - 0x30);
      else if (letter >= 0x61 && letter <= 0x66) value = value * 16 + <f64>(letter - 0x57);
      else this.fail(start + i, word + ' is no hexadecimal number');
    }
    if (word.length == 2) this.fail(start, word + ' is no hexadecimal number');
    return this.number(start, word, value);
  }

  /** A number with an optional suffix; or a word that only begins like one, as 10.0.0.1 does. */
  private numeric(start: i32, word: string, sign: i32): string {
    let i = sign;
    while (i < word.length && isDigit(word.charCodeAt(i))) i++;
    if (i + 1 < word.length && word.charCodeAt(i) == 0x2e && isDigit(word.charCodeAt(i + 1))) {
      i++;
      while (i < word.length && isDigit(word.charCodeAt(i))) i++;
    }
    const suffix = word.substring(i);
    for (let k = 0; k < suffix.length; k++) {
      if (!isLetter(suffix.charCodeAt(k))) return quoteJson(word);
    }
    const factor = factorOf(suffix);
    if (factor == 0) {
      this.fail(
        start + i,
        `"${suffix}" is no unit: sizes take k, M or G, durations us, ms or s; quote other text`,
      );
      return '';
    }
    const value = parseFloat(word.substring(0, i)) * factor;
    if (suffix != '' && Math.round(value) != value) {
      this.fail(start, word + ' is no whole number of ' + (suffix.endsWith('s') ? 'us' : 'bytes'));
    }
    return this.number(start, word, value);
  }

  private number(start: i32, word: string, value: f64): string {
    if (Math.abs(value) > NUMBER_MAX) this.fail(start, word + ' is beyond 2^53 - 1');
    if (this.message != '') return '';
    return Math.trunc(value) == value ? (<i64>value).toString() : value.toString();
  }
}
