/** Stands in for cache-model.ts in a page: fetchModule refuses an engine with a model before. */
export class CacheModel {}
