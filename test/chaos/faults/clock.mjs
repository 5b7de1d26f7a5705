/**
 * The wall clock jumps by up to an hour, as after a suspended machine or a wrong time server. The process alone sees it:
 * its `Date.now` is moved through the inspector, because moving the machine's clock would disturb everything else.
 * Limits and timeouts use the monotonic clock: nothing may fail.
 */
const row = (name, milliseconds) => ({
  name: `clock ${name}`,
  uses: "clock",
  explains: [],
  forMs: [300, 2_000],
  recoveryMs: 0,
  async begin({ gateway }, random) {
    await gateway.inspector.moveClock(Math.sign(milliseconds) * random.between(1_000, Math.abs(milliseconds)));
    return () => gateway.inspector.moveClock(0);
  },
});

export const clockFaults = [row("ahead", 3_600_000), row("back", -3_600_000)];
