//! Records, counters, histograms, exposition and access logs
