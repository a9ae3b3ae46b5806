// Metrics in the text format of Prometheus and OpenMetrics. Pure.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** All samples of a text. Lines that are none are left out. */
export function read(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split('\n')) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries(
      [...(match[2] ?? '').matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name ?? '', (value ?? '').replace(/\\(.)/g, '$1')]),
    );
    samples.push({ name: match[1] ?? '', labels, value: Number(match[3]) });
  }
  return samples;
}

export const sum = (samples: Sample[], name: string): number => samples.filter((one) => one.name === name).reduce((all, one) => all + one.value, 0);

/** Sums of several metrics by the value of a label. */
export function byLabel(samples: Sample[], label: string, names: string[]): [string, number[]][] {
  const values = [...new Set(samples.filter((one) => names.includes(one.name)).map((one) => one.labels[label] ?? ''))].filter(Boolean).toSorted();
  return values.map((value) => [value, names.map((name) => sum(samples.filter((one) => one.labels[label] === value), name))]);
}
