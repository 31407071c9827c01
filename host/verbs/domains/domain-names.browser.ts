/** Stands in for domain-names.ts in a page, which has no named domains. */
export const slotsOf = (): number[] => [];
export const takenDomain = slotsOf;
