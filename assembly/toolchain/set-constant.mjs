/** For compiler transforms: gives a constant of the engine another value than its source. */
import { Node } from 'assemblyscript';

/** Throws Error when `file` does not declare the constant `name`. */
export function setConstant(parser, file, name, value) {
  const source = parser.sources.find(({ normalizedPath }) => normalizedPath === file);
  const declaration = source?.statements
    .flatMap(({ declarations }) => declarations ?? [])
    .find((each) => each.name.text === name);
  if (!declaration) throw new Error(`${file} declares no ${name}`);
  const { range } = declaration;
  declaration.initializer = value
    ? Node.createTrueExpression(range)
    : Node.createFalseExpression(range);
}
