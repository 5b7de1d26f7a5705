/**
 * Living things (connection pools, key sets, buckets, sessions with their children) that outlive a reload. A new
 * configuration claims by key and definition what it still needs; the rest is retired or closed once the new one serves.
 */

export interface Generation {
  keep<Thing>(
    key: string,
    definition: unknown,
    open: () => Thing,
    close?: (thing: Thing) => void | Promise<void>,
    retire?: (thing: Thing) => Promise<void>,
  ): Thing;
  /** Runs with `commit`. */
  serving(action: () => void): void;
  /** The new configuration serves: what only the old one used is closed. */
  commit(): void;
  /** The new configuration is not used: what was opened for it is closed. */
  discard(): void;
}

export interface LivingThings {
  begin(): Generation;
  /** Resolves when everything is closed: children have ended, channels are shut. */
  closeAll(): Promise<void>;
}

interface Entry {
  readonly thing: unknown;
  close(): void | Promise<void>;
  retire?(): Promise<void>;
}

export function createLivingThings(onCloseError: (key: string, error: unknown) => void): LivingThings {
  let current = new Map<string, Entry>();
  /** Those that finish what they are doing. */
  const leaving = new Map<Entry, string>();

  async function retire(key: string, entry: Entry): Promise<void> {
    leaving.set(entry, key);
    try {
      await entry.retire?.();
    } catch (error) {
      onCloseError(key, error);
    } finally {
      leaving.delete(entry);
    }
  }

  async function close(key: string, entry: Entry): Promise<void> {
    try {
      await entry.close();
    } catch (error) {
      onCloseError(key, error);
    }
  }

  return {
    begin() {
      const next = new Map<string, Entry>();
      const actions: (() => void)[] = [];
      return {
        serving: (action) => void actions.push(action),
        keep(key, definition, open, closeThing, retireThing) {
          const identity = `${key}\n${JSON.stringify(definition)}`;
          const known = next.get(identity) ?? current.get(identity);
          if (known) {
            next.set(identity, known);
            return known.thing as ReturnType<typeof open>;
          }
          const thing = open();
          next.set(identity, {
            thing,
            close: () => closeThing?.(thing),
            ...(retireThing ? { retire: () => retireThing(thing) } : {}),
          });
          return thing;
        },
        commit() {
          for (const [key, entry] of current)
            if (!next.has(key)) void (entry.retire ? retire(key, entry) : close(key, entry));
          current = next;
          for (const action of actions) {
            try {
              action();
            } catch (error) {
              onCloseError("a new configuration", error);
            }
          }
        },
        discard() {
          for (const [key, entry] of next) if (!current.has(key)) void close(key, entry);
        },
      };
    },
    async closeAll() {
      const closing = [...current].map(([key, entry]) => close(key, entry));
      for (const [entry, key] of leaving) closing.push(close(key, entry));
      current = new Map();
      await Promise.all(closing);
    },
  };
}
