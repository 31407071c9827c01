/** Stands in for open-shared.ts in a browser, where processes cannot share a file. */
export async function openShared(): Promise<undefined> {}
