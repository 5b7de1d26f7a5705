/**
 * The texts of a whole body, as guards read them: strings that belong together are one text. Regular expressions, webhooks
 * and guards in shadow mode use the same extraction.
 */
import type { Steps } from "../../base/turns.ts";
import type { Members } from "../../json/json.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { type GuardFound, guardParts, spreadText } from "./guarded-text.ts";
import { mapTexts, type PlaceOptions } from "./text-places.ts";

export class BodyTexts {
  readonly #body: Members;
  readonly #options: PlaceOptions;
  readonly #runs: string[][] = [];
  /** The run of each string, in the order of the body. */
  readonly #order: number[] = [];

  constructor(body: Members, options: PlaceOptions) {
    this.#options = options;
    const known = new Map<string, number>();
    // What is withheld is gone from the first pass on.
    this.#body = mapTexts(body, options, (text, { run }) => {
      let index = known.get(run);
      if (index === undefined) {
        index = this.#runs.length;
        known.set(run, index);
        this.#runs.push([]);
      }
      this.#runs[index]?.push(text);
      this.#order.push(index);
      return text;
    });
  }

  /** Each with its parts joined. */
  get texts(): readonly string[] {
    return this.#runs.map((parts) => (parts.length === 1 ? (parts[0] as string) : parts.join("")));
  }

  /** The body with other texts, as many and in the same order. */
  replaced(texts: readonly string[]): Members {
    return this.#with(this.#runs.map((parts, i) => spreadText(parts, texts[i] ?? "")));
  }

  /** The body as the guards leave it. Throws GuardRejection. */
  *guarded(guards: readonly TextGuard[], found?: GuardFound): Steps<Members> {
    yield;
    let isChanged = false;
    const guarded: (readonly string[])[] = [];
    for (const parts of this.#runs) {
      const seen = yield* guardParts(parts, guards, found);
      isChanged ||= seen !== parts;
      guarded.push(seen);
    }
    return isChanged ? this.#with(guarded) : this.#body;
  }

  #with(runs: readonly (readonly string[])[]): Members {
    const taken = runs.map(() => 0);
    let next = 0;
    return mapTexts(this.#body, this.#options, (text) => {
      const run = this.#order[next++] ?? 0;
      const part = taken[run] ?? 0;
      taken[run] = part + 1;
      return runs[run]?.[part] ?? text;
    });
  }
}
