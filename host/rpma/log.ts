/** The log of librpma: messages to a function that the application sets. */
import { mustBe } from '../errors/check-whole.js';

/** `enum rpma_log_level`: each includes those before it. */
export const LogLevel = Object.freeze({
  DISABLED: -1,
  FATAL: 0,
  ERROR: 1,
  WARNING: 2,
  NOTICE: 3,
  INFO: 4,
  DEBUG: 5,
});

/** `enum rpma_log_threshold`: what goes to the log, and what to standard error besides. */
export const LogThreshold = Object.freeze({ THRESHOLD: 0, AUX: 1 });

/** `rpma_log_function`. */
export type LogFunction = (level: number, where: string, message: string) => void;

const NAMES = ['FATAL', 'ERROR', 'WARNING', 'NOTICE', 'INFO', 'DEBUG'];
/** As librpma begins. Held by the module, as it holds them by the process. */
const thresholds: [number, number] = [LogLevel.WARNING, LogLevel.DISABLED];
let logFunction: LogFunction | undefined;

/** `rpma_log_set_threshold`. Throws MisuseError. */
export function logSetThreshold(threshold: number, level: number): void {
  checkThreshold(threshold);
  if (!Object.values<number>(LogLevel).includes(level)) {
    throw mustBe('level', 'a LogLevel', level);
  }
  thresholds[threshold as 0 | 1] = level;
}

/** `rpma_log_get_threshold`. Throws MisuseError. */
export function logGetThreshold(threshold: number): number {
  checkThreshold(threshold);
  return thresholds[threshold as 0 | 1];
}

/** `rpma_log_set_function`; without one (RPMA_LOG_USE_DEFAULT_FUNCTION) standard error is it. */
export function logSetFunction(fn?: LogFunction): void {
  logFunction = fn;
}

/** @internal */
export function log(level: number, where: string, message: string): void {
  const [main, auxiliary] = thresholds;
  if (level > main && level > auxiliary) return;
  if (level <= main && logFunction) logFunction(level, where, message);
  else console.error(`*${NAMES[level] ?? level}* ${where}: ${message}`);
}

function checkThreshold(threshold: number): void {
  if (threshold !== LogThreshold.THRESHOLD && threshold !== LogThreshold.AUX) {
    throw mustBe('threshold', 'a LogThreshold', threshold);
  }
}
