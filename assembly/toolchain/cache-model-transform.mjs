/**
 * A compiler transform: sets CACHE_MODEL (region/cache-model.ts), so that this build of the engine
 * tells a model of an adapter's caches of every look-up. In the build that ships the constant is
 * false, and the compiler leaves all of it out.
 */
import { Node } from 'assemblyscript';
import { Transform } from 'assemblyscript/transform';

const FILE = 'assembly/region/cache-model.ts';
const NAME = 'CACHE_MODEL';

export default class CacheModelTransform extends Transform {
  afterParse(parser) {
    const source = parser.sources.find(({ normalizedPath }) => normalizedPath === FILE);
    const declaration = source?.statements
      .flatMap(({ declarations }) => declarations ?? [])
      .find(({ name }) => name.text === NAME);
    if (!declaration) throw new Error(`${FILE} declares no ${NAME}`);
    declaration.initializer = Node.createTrueExpression(declaration.range);
  }
}
