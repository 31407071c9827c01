/** Refusals of a device name options of `openDevice` and of other commands: those of `verbena run`. */
const NAMES: readonly (readonly [ofDevice: string, ofRun: string])[] = [
  [
    '(option address; --bind) or another UDP port (option port; --udp-port, --port)',
    '(--address), or start all programs at this address with the same --name',
  ],
  ['use fewer (memoryBytes), another directory (directory), a', 'use fewer (--memory), a'],
  ['memoryBytes', '--memory'],
];

/** The sentence of a refusal with the options that `verbena run` has. */
export function withRunOptions(sentence: string): string {
  return NAMES.reduce((text, [ofDevice, ofRun]) => text.replaceAll(ofDevice, ofRun), sentence);
}
