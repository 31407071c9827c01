/**
 * A compiler transform: sets CACHE_MODEL (region/cache-model.ts), so that this build of the engine
 * tells a model of an adapter's caches of every look-up. In the build that ships the constant is
 * false, and the compiler leaves the model out.
 */
import { Transform } from 'assemblyscript/transform';
import { setConstant } from './set-constant.mjs';

export default class CacheModelTransform extends Transform {
  afterParse(parser) {
    setConstant(parser, 'assembly/region/cache-model.ts', 'CACHE_MODEL', true);
  }
}
