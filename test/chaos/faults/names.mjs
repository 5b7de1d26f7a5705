/**
 * The name of the web backend cannot be resolved. With a resolver that fails or hangs, the last good address serves on:
 * nothing may fail. A name that is said not to exist is believed.
 */
const row = (mood, explains) => ({
  name: `the name server ${mood}`,
  uses: "names",
  explains,
  forMs: [300, 3_000],
  recoveryMs: 3_000,
  needs: "names",
  begin({ names }) {
    names.set(mood);
    return () => names.set("answers");
  },
});

export const nameFaults = [row("fails", []), row("silent", []), row("denies", ["http", "stream", "websocket"])];
