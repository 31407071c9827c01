/**
 * uvu drops the error of a `before` hook: its tests count as failed, and nothing says why. A hook
 * within `printed` prints it.
 */
type Hook<State> = (state: State) => Promise<void> | void;

export function printed<State>(hook: Hook<State>): (state: State) => Promise<void> {
  return async (state) => {
    try {
      await hook(state);
    } catch (error) {
      console.error(error);
      throw error;
    }
  };
}
