/**
 * The flags of `npm run chaos` and `npm run soak`: numbers with a default and bounds. Anything else is refused.
 */
export function parseFlags(args, known) {
  const values = Object.fromEntries(Object.entries(known).map(([name, { byDefault }]) => [name, byDefault]));
  for (let i = 0; i < args.length; i += 2) {
    const name = args[i].replace(/^--/, "");
    const flag = Object.hasOwn(known, name) ? known[name] : undefined;
    const value = Number(args[i + 1]);
    if (flag === undefined || !(value >= flag.min && value <= flag.max)) {
      const usage = Object.entries(known).map(([one, { min, max }]) => `--${one} <${min} to ${max}>`);
      console.error(`usage: ${usage.join(" ")}; found ${args.slice(i, i + 2).join(" ")}`);
      process.exit(2);
    }
    values[name] = value;
  }
  return values;
}
