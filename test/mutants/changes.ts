/** By file of the host: name, the test that must fail, a text of the file, and the text instead. */
export type Changes = Readonly<
  Record<string, readonly (readonly [name: string, test: string, find: string, replace: string])[]>
>;
