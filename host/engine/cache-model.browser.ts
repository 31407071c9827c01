/** Stands in for cache-model.ts in a page, whose engine has no model. */
import { RefusalError } from '../errors/errors.js';

export class CacheModel {
  constructor() {
    const sentence = 'openDevice: cacheModel is not in verbena/browser; use Node';
    throw new RefusalError('EOPNOTSUPP', sentence);
  }
}
